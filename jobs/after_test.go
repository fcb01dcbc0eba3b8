package jobs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/jobs"
)

func TestParseAfter(t *testing.T) {
	for words, want := range map[string]string{
		"1a2b":                     "[1a2b (ok)]",
		"ok:1A2B,any:33":           "[1a2b (ok) 33 (any)]",
		"notok:1 any:2,ok:3":       "[1 (notok) 2 (any) 3 (ok)]",
		"1 ok:1":                   "[1 (ok)]",
		"1 notok:1":                `! "notok:1" asks for another end of that job than ok:1`,
		"after:1":                  `! "after:1" does not say`,
		"ok:":                      `! "ok:" names no job`,
		"":                         `! "" names no job`,
		"1,":                       `! "" names no job`,
		"ok:any:1":                 `! "ok:any:1" names no job`,
		"../../etc":                "! ",
		strings.Repeat("1,", 3000): `! "" names no job`,
	} {
		got, err := jobs.ParseAfter(strings.Split(words, " "))
		text := fmt.Sprint(got)
		if err != nil {
			text = "! " + err.Error()
			if jobs.CodeOf(err) != jobs.CodeUsage || jobs.HintOf(err) == "" {
				t.Errorf("%q: %v", words, err)
			}
		}
		if !strings.HasPrefix(text, want) {
			t.Errorf("%q: %s", words, text)
		}
	}
	var many []string
	for i := range jobs.MostAfter + 1 {
		many = append(many, fmt.Sprintf("any:%x", i))
	}
	if _, err := jobs.ParseAfter(many); err == nil || !strings.Contains(err.Error(), "501 jobs, and may wait for 500") {
		t.Error(err)
	}
	if got, err := jobs.ParseAfter(many[1:]); err != nil || len(got) != jobs.MostAfter {
		t.Error(len(got), err)
	}
}

// ended is a job whose one attempt ended so.
func ended(id string, p *jobs.Retry, e jobs.ExitRecord) *jobs.Record {
	r := record(p, e)
	r.Spec.ID = id
	return r
}

func TestWaitFor(t *testing.T) {
	running := ended("run", nil, jobs.ExitRecord{})
	running.Attempts[0].Exit = nil
	again := ended("again", &jobs.Retry{Attempts: 3, Memory: 2}, jobs.ExitRecord{State: jobs.StateOutOfMemory})
	lost := ended("lost", nil, jobs.ExitRecord{})
	lost.Attempts[0].Exit, lost.Attempts[0].Verdict = nil, &jobs.Verdict{State: jobs.StateLost, Reason: "silent"}
	cancelled := ended("cancelled", nil, jobs.ExitRecord{State: jobs.StateCancelled})
	cancelled.Cancel = &jobs.Cancel{}
	records := map[string]*jobs.Record{
		"run": running, "again": again, "lost": lost, "cancelled": cancelled,
		"done":   ended("done", jobs.DefaultRetry(), jobs.ExitRecord{State: jobs.StateCompleted}),
		"none":   ended("none", nil, jobs.ExitRecord{State: jobs.StateCompleted, Code: jobs.CodeNoChanges}),
		"failed": ended("failed", nil, jobs.ExitRecord{State: jobs.StateFailed, Reason: "the command ended with exit code 3"}),
	}
	// decided is what was accepted, whatever the attempt says.
	records["decided"] = ended("decided", jobs.DefaultRetry(), jobs.ExitRecord{State: jobs.StateCompleted})
	records["decided"].Attempts[0].Decision = &jobs.Decision{Verb: jobs.VerbAccept, State: jobs.StateCancelled}
	for _, c := range []struct{ after, waits, never string }{
		{"run", "run (ok)", ""},
		{"again", "again (ok)", ""},
		{"notok:again", "again (notok)", ""},
		{"done", "", ""},
		{"none", "", ""},
		{"any:failed", "", ""},
		{"notok:failed", "", ""},
		{"notok:lost", "", ""},
		{"notok:cancelled", "", ""},
		{"notok:decided", "", ""},
		{"failed", "", "job failed (ok), which it waits for, has ended as failed: the command ended with exit code 3"},
		{"lost", "", "job lost (ok), which it waits for, has ended as lost: silent"},
		{"cancelled", "", "has ended as cancelled"},
		{"notok:done", "", "job done (notok), which it waits for, has ended as completed"},
		{"gone", "", "the record of job gone (ok), which it waits for, was removed"},
		{"any:gone", "", ""},
		{"run failed", "run (ok)", "job failed (ok)"},
		{"done any:run again", "run (any), again (ok)", ""},
	} {
		var list []jobs.After
		for _, w := range strings.Fields(c.after) {
			need, job, found := strings.Cut(w, ":")
			if !found {
				need, job = "ok", w
			}
			list = append(list, jobs.After{Job: job, Need: jobs.Need(need)})
		}
		w := jobs.WaitFor(list, records)
		if w.String() != c.waits || !strings.Contains(w.Never, c.never) || (w.Never == "") != (c.never == "") || w.Over() != (c.waits == "" || c.never != "") {
			t.Errorf("%s: %q %q", c.after, w.String(), w.Never)
		}
	}
	many := make([]jobs.After, 5)
	for i := range many {
		many[i] = jobs.After{Job: "run", Need: jobs.NeedAny}
	}
	if got := jobs.WaitFor(many, records).String(); got != "run (any), run (any), run (any) and 2 more" {
		t.Error(got)
	}
}

// TestWaitForSettles draws ends of jobs one after the other: what was decided of
// a job that waits for them never changes again, and when all have ended it is
// decided.
func TestWaitForSettles(t *testing.T) {
	states := []jobs.State{jobs.StateCompleted, jobs.StateFailed, jobs.StateCancelled, jobs.StateTimeout, jobs.StateOutOfMemory, jobs.StateError, jobs.StateLost}
	needs := []jobs.Need{jobs.NeedOK, jobs.NeedAny, jobs.NeedNotOK}
	rapid.Check(t, func(t *rapid.T) {
		records := map[string]*jobs.Record{}
		var list []jobs.After
		n := rapid.IntRange(1, 6).Draw(t, "jobs")
		for i := range n {
			id := fmt.Sprint(i)
			list = append(list, jobs.After{Job: id, Need: rapid.SampledFrom(needs).Draw(t, "need")})
			records[id] = ended(id, jobs.DefaultRetry(), jobs.ExitRecord{})
			records[id].Attempts[0].Exit = nil
		}
		want := true
		var before jobs.Wait
		for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "order") {
			if i >= n {
				continue
			}
			if before = jobs.WaitFor(list, records); len(before.For) == 0 {
				t.Fatal("it waits for nobody, and not all have ended")
			}
			e := jobs.ExitRecord{State: rapid.SampledFrom(states).Draw(t, "state"), Ended: noon}
			r := records[fmt.Sprint(i)]
			r.Attempts[0].Exit = &e
			d := jobs.Next(r, nil, noon).Decision
			r.Attempts[0].Decision = &d
			if d.Verb == jobs.VerbRetry { // its next attempt ends as it likes, and is accepted
				if w := jobs.WaitFor(list, records); !slices.Equal(w.For, before.For) {
					t.Fatalf("%v, and it is tried again", w)
				}
				r.Attempts = append(r.Attempts, jobs.Attempt{N: 2, Exit: &e, Decision: &jobs.Decision{Verb: jobs.VerbAccept, State: e.State}})
			}
			switch list[i].Need {
			case jobs.NeedOK:
				want = want && e.State == jobs.StateCompleted
			case jobs.NeedNotOK:
				want = want && e.State != jobs.StateCompleted
			case jobs.NeedAny:
			}
			after := jobs.WaitFor(list, records)
			if before.Never != "" && after.Never == "" || (after.Never == "") != want || len(after.For) != len(before.For)-1 {
				t.Fatalf("%+v, then %+v; wanted %v", before, after, want)
			}
		}
		if !jobs.WaitFor(list, records).Over() {
			t.Fatal("all have ended, and it still waits")
		}
	})
}

// TestWaitingIsFree is about attempts that begin behind a job that has not ended:
// they cost no credit, and what the attempt was to have different stays.
func TestWaitingIsFree(t *testing.T) {
	wait := jobs.ExitRecord{State: jobs.StateError, Class: jobs.ClassWaiting, Reason: "it waits for 1a2b3c4d (ok)"}
	for _, p := range []*jobs.Retry{{}, {Attempts: 2, Memory: 1}} {
		r := record(p, wait)
		r.Attempts[0].Info.Change.Memory = 3 * jobs.GiB
		var last time.Time
		for n := 1; ; n++ {
			if jobs.StateOf(r).Final() {
				t.Fatalf("%+v: it has ended before attempt %d", p, n)
			}
			d := jobs.Next(r, nil, noon).Decision
			if d.Verb != jobs.VerbRetry || d.Class != jobs.ClassWaiting || d.Change.Memory != 3*jobs.GiB || d.Change.NotBefore.Before(last) || d.Change.NotBefore.Sub(noon) > 30*time.Minute {
				t.Fatalf("%+v: attempt %d: %+v", p, n, d)
			}
			last = d.Change.NotBefore
			a := r.Current()
			a.Decision = &d
			next := jobs.Attempt{N: n + 1, Info: jobs.AttemptInfo{Number: n + 1, Change: d.Change}, Claim: a.Claim}
			if n == 200 {
				e := jobs.ExitRecord{State: jobs.StateOutOfMemory, Ended: noon}
				next.Exit = &e
				r.Attempts = append(r.Attempts, next)
				break
			}
			e := wait
			next.Exit = &e
			r.Attempts = append(r.Attempts, next)
		}
		if d := jobs.Next(r, nil, noon).Decision; (d.Verb == jobs.VerbRetry) != p.Again() {
			t.Errorf("%+v: after it ran: %+v", p, d)
		}
	}
	// Someone who wants it to end ends it.
	r := record(&jobs.Retry{}, wait)
	r.Cancel = &jobs.Cancel{}
	if d := jobs.Next(r, nil, noon).Decision; d.Verb != jobs.VerbAccept {
		t.Error(d)
	}
	r = record(&jobs.Retry{}, wait)
	for range jobs.MostWaits {
		d := jobs.Next(r, nil, noon).Decision
		e := wait
		r.Current().Decision = &d
		r.Attempts = append(r.Attempts, jobs.Attempt{Exit: &e})
	}
	if d := jobs.Next(r, nil, noon).Decision; d.Verb != jobs.VerbAccept || !strings.Contains(d.Reason, "begun 800 times") {
		t.Error(d)
	}
}
