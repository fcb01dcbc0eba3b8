package jobs_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/jobs"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// record is a job with one attempt that has ended so.
func record(p *jobs.Retry, e jobs.ExitRecord) *jobs.Record {
	e.Ended = noon
	return &jobs.Record{
		Spec:     jobs.Spec{Retry: p, Place: jobs.Place{Resources: jobs.Resources{CPUs: 2, Memory: jobs.GiB, Time: time.Hour}}},
		Attempts: []jobs.Attempt{{N: 1, Info: jobs.AttemptInfo{ID: "1", Number: 1}, Submitted: &jobs.Submitted{}, Claim: &jobs.Claim{Node: "c1", Time: noon.Add(-time.Hour)}, Exit: &e}},
	}
}

// TestDecide is what follows each way to end.
func TestDecide(t *testing.T) {
	all := &jobs.Retry{Attempts: 9, Task: 1, Memory: 1, Time: 1, Node: 1, Infra: 2}
	for name, c := range map[string]struct {
		policy *jobs.Retry
		exit   jobs.ExitRecord
		cancel bool
		word   *jobs.Status
		do     jobs.Do
		verb   jobs.Verb
		change jobs.Change
		reason string
	}{
		"success":              {policy: all, exit: jobs.ExitRecord{State: jobs.StateCompleted}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "it succeeded"},
		"no policy":            {exit: jobs.ExitRecord{State: jobs.StateOutOfMemory}},
		"the task failed":      {policy: jobs.DefaultRetry(), exit: jobs.ExitRecord{State: jobs.StateFailed, Exit: jobs.Exit{Started: true, Code: 3}}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "not tried again"},
		"the task is asked":    {policy: all, exit: jobs.ExitRecord{State: jobs.StateFailed, Exit: jobs.Exit{Started: true, Code: 3}}, do: jobs.DoDecide, verb: jobs.VerbRetry, reason: "retry.task"},
		"another code":         {policy: &jobs.Retry{Attempts: 9, Task: 1, Codes: []int{4}}, exit: jobs.ExitRecord{State: jobs.StateFailed, Exit: jobs.Exit{Started: true, Code: 3}}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "retry.codes"},
		"that code":            {policy: &jobs.Retry{Attempts: 9, Task: 1, Codes: []int{3}}, exit: jobs.ExitRecord{State: jobs.StateFailed, Exit: jobs.Exit{Started: true, Code: 3}}, do: jobs.DoDecide, verb: jobs.VerbRetry, reason: "retry.task"},
		"memory":               {policy: all, exit: jobs.ExitRecord{State: jobs.StateOutOfMemory, MaxRSS: 900 * jobs.MiB}, do: jobs.DoDecide, verb: jobs.VerbRetry, change: jobs.Change{Memory: 1536 * jobs.MiB}, reason: "1536MiB"},
		"memory, high peak":    {policy: all, exit: jobs.ExitRecord{State: jobs.StateOutOfMemory, MaxRSS: 2 * jobs.GiB}, do: jobs.DoDecide, verb: jobs.VerbRetry, change: jobs.Change{Memory: 2560 * jobs.MiB}, reason: "2560MiB"},
		"memory, bounded":      {policy: &jobs.Retry{Attempts: 9, Memory: 1, MaxMemory: 1200 * jobs.MiB}, exit: jobs.ExitRecord{State: jobs.StateOutOfMemory}, do: jobs.DoDecide, verb: jobs.VerbRetry, change: jobs.Change{Memory: 1200 * jobs.MiB}, reason: "1200MiB"},
		"memory, at its bound": {policy: &jobs.Retry{Attempts: 9, Memory: 1, MaxMemory: jobs.GiB}, exit: jobs.ExitRecord{State: jobs.StateOutOfMemory}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "retry.max_memory"},
		"memory, of the site":  {policy: &jobs.Retry{Attempts: 9, Memory: 1, Most: jobs.Most{Memory: 1100 * jobs.MiB, MemoryWhy: "the largest node"}}, exit: jobs.ExitRecord{State: jobs.StateOutOfMemory}, do: jobs.DoDecide, verb: jobs.VerbRetry, change: jobs.Change{Memory: 1100 * jobs.MiB}, reason: "with 1100MiB of memory; the largest node"},
		"memory, all of it":    {policy: &jobs.Retry{Attempts: 9, Memory: 1, Most: jobs.Most{Memory: jobs.GiB, MemoryWhy: "the largest node has no more"}}, exit: jobs.ExitRecord{State: jobs.StateOutOfMemory}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "the largest node has no more"},
		"time, of the site":    {policy: &jobs.Retry{Attempts: 9, Time: 1, Most: jobs.Most{Time: 90 * time.Minute, TimeWhy: "MaxTime"}}, exit: jobs.ExitRecord{State: jobs.StateTimeout}, do: jobs.DoDecide, verb: jobs.VerbRetry, change: jobs.Change{Time: 90 * time.Minute}, reason: "with 1h30m0s; MaxTime allows no more"},
		"time, all of it":      {policy: &jobs.Retry{Attempts: 9, Time: 1, Most: jobs.Most{Time: time.Hour, TimeWhy: "MaxTime"}}, exit: jobs.ExitRecord{State: jobs.StateTimeout}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "MaxTime allows no more"},
		"time":                 {policy: all, exit: jobs.ExitRecord{State: jobs.StateTimeout}, do: jobs.DoDecide, verb: jobs.VerbRetry, change: jobs.Change{Time: 2 * time.Hour}, reason: "2h0m0s"},
		"time by default":      {policy: jobs.DefaultRetry(), exit: jobs.ExitRecord{State: jobs.StateTimeout}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "class time"},
		"a node":               {policy: all, exit: jobs.ExitRecord{State: jobs.StateError, Class: jobs.ClassNode}, do: jobs.DoDecide, verb: jobs.VerbRetry, change: jobs.Change{Exclude: []string{"c1"}}, reason: "another node"},
		"the site":             {policy: all, exit: jobs.ExitRecord{State: jobs.StateError}, do: jobs.DoDecide, verb: jobs.VerbRetry, change: jobs.Change{NotBefore: noon.Add(30 * time.Second)}, reason: "30s later"},
		"a refusal":            {policy: all, exit: jobs.ExitRecord{State: jobs.StateError, Class: jobs.ClassPolicy}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "the same refusal"},
		"cancelled":            {policy: all, exit: jobs.ExitRecord{State: jobs.StateOutOfMemory}, cancel: true, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "its end was requested"},
		"ended, not asked":     {policy: all, exit: jobs.ExitRecord{State: jobs.StateCancelled, Class: jobs.ClassEnded}, do: jobs.DoAsk},
		"ended, still running": {policy: all, exit: jobs.ExitRecord{State: jobs.StateCancelled, Class: jobs.ClassEnded}, word: &jobs.Status{State: jobs.StateRunning, NativeState: "COMPLETING"}, do: jobs.DoAsk},
		"preempted":            {policy: all, exit: jobs.ExitRecord{State: jobs.StateCancelled, Class: jobs.ClassEnded}, word: &jobs.Status{State: jobs.StateError, Class: jobs.ClassPreempted, NativeState: "PREEMPTED"}, do: jobs.DoDecide, verb: jobs.VerbRetry, reason: "make room"},
		"scancelled":           {policy: all, exit: jobs.ExitRecord{State: jobs.StateCancelled, Class: jobs.ClassEnded}, word: &jobs.Status{State: jobs.StateCancelled, NativeState: "CANCELLED", Reason: "by 1000"}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "its end was requested"},
		"requeued":             {policy: all, exit: jobs.ExitRecord{State: jobs.StateCancelled, Class: jobs.ClassEnded}, word: &jobs.Status{State: jobs.StateError, Class: jobs.ClassPreempted, NativeState: jobs.WordRequeued}, do: jobs.DoDecide, verb: jobs.VerbRetry, reason: "its node failed, it had to make room"},
		"core hours":           {policy: &jobs.Retry{Attempts: 9, Memory: 5, CoreHours: 2}, exit: jobs.ExitRecord{State: jobs.StateOutOfMemory}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "2.00 core hours"},
		"attempts":             {policy: &jobs.Retry{Attempts: 1, Memory: 5}, exit: jobs.ExitRecord{State: jobs.StateOutOfMemory}, do: jobs.DoDecide, verb: jobs.VerbAccept, reason: "retry.attempts allows 1"},
	} {
		r := record(c.policy, c.exit)
		if c.cancel {
			r.Cancel = &jobs.Cancel{}
		}
		step := jobs.Next(r, c.word, noon)
		d := step.Decision
		if step.Do != c.do || d.Verb != c.verb || !reflect.DeepEqual(d.Change, c.change) || !strings.Contains(d.Reason, c.reason) {
			t.Errorf("%s: %+v", name, step)
		}
		if c.do == jobs.DoDecide && (len(d.Evidence) == 0 || d.Attempt != "1") {
			t.Errorf("%s: no evidence: %+v", name, d)
		}
	}
}

// Another node is tried at once where it was this one's doing, the second time
// where that is not known, and never where it was no node's.
func TestDecideNode(t *testing.T) {
	for _, c := range []struct {
		blame       jobs.Blame
		once, twice []string
	}{
		{"", nil, []string{"c1"}},
		{jobs.BlameNode, []string{"c1"}, []string{"c1"}},
		{jobs.BlameOther, nil, nil},
	} {
		r := record(&jobs.Retry{Attempts: 9, Infra: 2}, jobs.ExitRecord{State: jobs.StateError, Blame: c.blame})
		d := jobs.Next(r, nil, noon).Decision
		if d.Verb != jobs.VerbRetry || !slices.Equal(d.Change.Exclude, c.once) {
			t.Errorf("%q, once: %+v", c.blame, d)
		}
		r.Attempts[0].Decision = &d
		second := r.Attempts[0]
		second.N, second.Decision, second.Info = 2, nil, jobs.AttemptInfo{ID: "2", Number: 2, Change: d.Change}
		r.Attempts = append(r.Attempts, second)
		if d = jobs.Next(r, nil, noon).Decision; d.Verb != jobs.VerbRetry || !slices.Equal(d.Change.Exclude, c.twice) {
			t.Errorf("%q, twice: %+v", c.blame, d)
		}
	}
}

// TestRequeueForgotten: a job that was told to end minutes after its start, and that
// the scheduler calls timed out an hour later, was requeued by a scheduler that has
// forgotten it. It has not had its time, and no person ended it.
func TestRequeueForgotten(t *testing.T) {
	word := &jobs.Status{State: jobs.StateTimeout, Class: jobs.ClassTime, NativeState: "TIMEOUT"}
	for _, c := range []struct {
		ran    time.Duration
		forbid []string
		class  jobs.Class
	}{{5 * time.Minute, nil, jobs.ClassInfra}, {59 * time.Minute, nil, jobs.ClassTime}, {5 * time.Minute, []string{"time"}, jobs.ClassTime}} {
		r := record(jobs.DefaultRetry(), jobs.ExitRecord{State: jobs.StateCancelled, Class: jobs.ClassEnded})
		r.Attempts[0].Claim.Time, r.Spec.Profile.Forbid = noon.Add(-c.ran), c.forbid
		d := jobs.Next(r, word, noon).Decision
		if d.Class != c.class || (d.Verb == jobs.VerbRetry) != (c.class == jobs.ClassInfra) {
			t.Errorf("%v: %+v", c.ran, d)
		}
		r.Spec.Retry.Infra = 0
		if d = jobs.Next(r, word, noon).Decision; c.class == jobs.ClassInfra && (d.State != jobs.StateError || d.Code != jobs.CodeInfra) {
			t.Errorf("not tried again: %+v", d)
		}
	}
}

// TestRequeuedRuns: of an attempt whose job was requeued after a lost node, whoever
// decides may see that the job runs again. It need not have made room for others.
func TestRequeuedRuns(t *testing.T) {
	r := record(jobs.DefaultRetry(), jobs.ExitRecord{})
	r.Attempts[0].Exit, r.Attempts[0].Verdict = nil, &jobs.Verdict{State: jobs.StateError, Class: jobs.ClassPreempted, Word: jobs.WordRequeued}
	d := jobs.Next(r, &jobs.Status{State: jobs.StateRunning, NativeState: "RUNNING"}, noon).Decision
	if !strings.Contains(d.Reason, "its node failed") || d.Word != jobs.WordRequeued {
		t.Errorf("%+v", d)
	}
}

// TestDecideFromVerdict is about attempts that left no record of their own.
func TestDecideFromVerdict(t *testing.T) {
	for _, c := range []struct {
		verdict jobs.Verdict
		class   jobs.Class
		verb    jobs.Verb
	}{
		{jobs.Verdict{State: jobs.StateLost, Reason: "silent"}, jobs.ClassInfra, jobs.VerbRetry},
		{jobs.Verdict{State: jobs.StateError, Class: jobs.ClassNode, Word: "NODE_FAIL"}, jobs.ClassNode, jobs.VerbRetry},
		{jobs.Verdict{State: jobs.StateError, Class: jobs.ClassPreempted, Word: "PREEMPTED"}, jobs.ClassPreempted, jobs.VerbRetry},
		{jobs.Verdict{State: jobs.StateOutOfMemory, Word: "OUT_OF_MEMORY"}, jobs.ClassMemory, jobs.VerbRetry},
		{jobs.Verdict{State: jobs.StateCancelled, Word: "CANCELLED"}, jobs.ClassStop, jobs.VerbAccept},
		{jobs.Verdict{State: jobs.StateError, Class: jobs.ClassPolicy}, jobs.ClassPolicy, jobs.VerbAccept},
	} {
		r := record(jobs.DefaultRetry(), jobs.ExitRecord{})
		r.Attempts[0].Exit, r.Attempts[0].Verdict = nil, &c.verdict
		if d := jobs.Next(r, nil, noon).Decision; d.Class != c.class || d.Verb != c.verb {
			t.Errorf("%+v: %+v", c.verdict, d)
		}
	}
}

// TestNextEnds plays jobs whose attempts end in any way, with actors that see
// the record at any moment: every job comes to an end, within its credits, with
// exactly one accepted attempt, and what was decided is never decided again.
func TestNextEnds(t *testing.T) {
	states := []jobs.State{jobs.StateCompleted, jobs.StateFailed, jobs.StateCancelled, jobs.StateTimeout, jobs.StateOutOfMemory, jobs.StateError, jobs.StateLost}
	classes := []jobs.Class{"", jobs.ClassTask, jobs.ClassMemory, jobs.ClassTime, jobs.ClassNode, jobs.ClassPreempted, jobs.ClassInfra, jobs.ClassPolicy, jobs.ClassStop, jobs.ClassEnded}
	words := []string{"PREEMPTED", "NODE_FAIL", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "FAILED", "COMPLETED", "a new word"}
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.IntRange(0, 4)
		p := &jobs.Retry{Attempts: rapid.IntRange(1, 8).Draw(t, "attempts"), Task: small.Draw(t, "task"), Memory: small.Draw(t, "memory"), Time: small.Draw(t, "time"),
			Node: small.Draw(t, "node"), Infra: small.Draw(t, "infra")}
		r := &jobs.Record{Spec: jobs.Spec{Retry: p, Place: jobs.Place{Resources: jobs.Resources{Memory: jobs.GiB, Time: time.Hour}}}, Attempts: []jobs.Attempt{{N: 1, Info: jobs.AttemptInfo{ID: "1"}}}}
		if rapid.Bool().Draw(t, "resume") {
			r.Spec.Resume = &jobs.Resume{Attempts: rapid.IntRange(1, 6).Draw(t, "resumed"), Min: 10 * time.Second}
		}
		now := noon
		for range 5 * jobs.MostAttempts {
			a := r.Current()
			var word *jobs.Status
			switch {
			case a.Exit == nil && a.Verdict == nil:
				if rapid.Bool().Draw(t, "cancel") && rapid.IntRange(0, 20).Draw(t, "rarely") == 0 {
					r.Cancel = &jobs.Cancel{}
				}
				a.Claim = &jobs.Claim{Node: fmt.Sprintf("c%d", rapid.IntRange(1, 3).Draw(t, "node")), Time: now}
				now = now.Add(time.Minute)
				state, class := rapid.SampledFrom(states).Draw(t, "state"), rapid.SampledFrom(classes).Draw(t, "class")
				if rapid.Bool().Draw(t, "record") {
					a.Exit = &jobs.ExitRecord{State: state, Class: class, Ended: now, MaxRSS: jobs.Bytes(rapid.Int64Range(0, 1<<40).Draw(t, "peak"))}
				} else {
					a.Verdict = &jobs.Verdict{State: state, Class: class}
				}
				if rapid.Bool().Draw(t, "checkpoint") {
					a.Checkpoint = &jobs.Checkpoint{Ran: time.Duration(rapid.IntRange(0, 60).Draw(t, "ran")) * time.Second, Point: jobs.Point{Attempt: a.N, ID: a.Info.ID}}
				}
			case rapid.Bool().Draw(t, "asked"):
				word = &jobs.Status{State: jobs.StateError, NativeState: rapid.SampledFrom(words).Draw(t, "word")}
			}
			before := jobs.StateOf(r)
			step := jobs.Next(r, word, now)
			if again := jobs.Next(r, word, now); !reflect.DeepEqual(step, again) {
				t.Fatalf("not the same twice: %+v, %+v", step, again)
			}
			switch step.Do {
			case jobs.DoNothing:
				if !before.Final() || a.Decision == nil || a.Decision.Verb != jobs.VerbAccept {
					t.Fatalf("nothing to do, and it is %s: %+v", before, a)
				}
				check(t, r)
				return
			case jobs.DoAsk:
				if before.Final() {
					t.Fatalf("it is %s, and the scheduler is to be asked", before)
				}
			case jobs.DoDecide:
				d := step.Decision
				if d.Verb == jobs.VerbRetry && d.Change.Memory != 0 && d.Change.Memory <= a.Info.Change.Resources(r.Spec.Resources).Memory && d.Class == jobs.ClassMemory {
					t.Fatalf("no more memory than before: %+v", d)
				}
				if len(d.Evidence) == 0 || d.Reason == "" {
					t.Fatalf("without a reason: %+v", d)
				}
				checkPoint(t, r, d)
				a.Decision = &d
			case jobs.DoBegin:
				if before != jobs.StatePending {
					t.Fatalf("it is %s before it begins again", before)
				}
				r.Attempts = append(r.Attempts, jobs.Attempt{N: a.N + 1, Info: jobs.AttemptInfo{ID: fmt.Sprint(a.N + 1), Change: step.Decision.Change}})
			}
		}
		t.Fatalf("it does not end: %d attempts", len(r.Attempts))
	})
}

// checkPoint is what holds of the point from which the next attempt goes on: it
// is one that was reached, is not before the one that this attempt went on from,
// and is used where there is one.
func checkPoint(t *rapid.T, r *jobs.Record, d jobs.Decision) {
	a := r.Current()
	was, is := a.Info.Change.Resume, d.Change.Resume
	switch {
	case d.Verb != jobs.VerbRetry:
		return
	case is == nil && (was != nil || r.Spec.Resume != nil && a.Checkpoint != nil && d.Class != jobs.ClassTask):
		t.Fatalf("it begins anew: %+v after %+v", d, a)
	case is == nil:
		return
	case r.Spec.Resume == nil:
		t.Fatalf("it goes on, which nobody has asked for: %+v", d)
	case was != nil && is.Attempt < was.Attempt:
		t.Fatalf("it goes back from attempt %d to %d", was.Attempt, is.Attempt)
	case d.Class == jobs.ClassTime && is.ID == a.Info.ID && a.Checkpoint.Ran < r.Spec.Resume.Min:
		t.Fatalf("it was stopped at once, and goes on: %+v", a.Checkpoint)
	}
	for _, from := range r.Attempts {
		if from.Info.ID == is.ID && from.N == is.Attempt && from.Checkpoint != nil {
			return
		}
	}
	t.Fatalf("nobody has come to %+v", is)
}

// check is what holds of a job that is over.
func check(t *rapid.T, r *jobs.Record) {
	accepted, counted, resumed := 0, 0, 0
	spent := map[jobs.Class]int{}
	for i, a := range r.Attempts {
		switch {
		case a.Decision == nil:
			t.Fatalf("attempt %d has no decision", a.N)
		case a.Decision.Verb == jobs.VerbAccept:
			accepted++
			if i != len(r.Attempts)-1 {
				t.Fatalf("attempt %d was accepted, and another followed", a.N)
			}
		case a.Decision.Class == jobs.ClassTime && a.TakesUp():
			resumed++
		default:
			spent[a.Decision.Class]++
			if a.Decision.Class != jobs.ClassPreempted {
				counted++
			}
		}
	}
	p := r.Spec.Retry
	if accepted != 1 || counted >= max(p.Attempts, 1) {
		t.Fatalf("%d accepted, %d tries of %d", accepted, counted, p.Attempts)
	}
	if most := r.Spec.Resume; resumed > 0 && (most == nil || resumed >= most.Attempts) {
		t.Fatalf("it went on %d times: %+v", resumed, most)
	}
	for c, most := range map[jobs.Class]int{jobs.ClassTask: p.Task, jobs.ClassMemory: p.Memory, jobs.ClassTime: p.Time, jobs.ClassNode: p.Node, jobs.ClassInfra: p.Infra, jobs.ClassStop: 0, jobs.ClassPolicy: 0, jobs.ClassNone: 0} {
		if spent[c] > most {
			t.Fatalf("class %q: %d of %d", c, spent[c], most)
		}
	}
	last := r.Current().Decision
	if jobs.StateOf(r) != last.State {
		t.Fatalf("it is %s, and %s was accepted", jobs.StateOf(r), last.State)
	}
	// What comes late changes nothing.
	late := *r
	late.Attempts = slices.Clone(r.Attempts)
	late.Current().Exit = &jobs.ExitRecord{State: jobs.StateCompleted}
	if jobs.StateOf(&late) != last.State || jobs.Next(&late, nil, noon).Do != jobs.DoNothing {
		t.Fatal("a late record changes what was accepted")
	}
}
