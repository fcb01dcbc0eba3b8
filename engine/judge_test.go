package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

func word(state jobs.State, w string) jobs.Status { return jobs.Status{State: state, NativeState: w} }

// TestJudge goes through what can be known of a job that has recorded no end:
// its claim, its beat, the wish for its end, and the scheduler's word.
func TestJudge(t *testing.T) {
	running, failed := word(jobs.StateRunning, "RUNNING"), word(jobs.StateFailed, "FAILED")
	for name, c := range map[string]struct {
		claimed bool
		cancel  bool
		beat    time.Duration // of the profile
		age     time.Duration // of the last beat, else of the submission
		forget  bool          // the scheduler does not know it
		status  jobs.Status
		log     string // the scheduler's
		want    jobs.State
		code    int
		reason  string // part of the verdict's, or of the note
		asked   int
	}{
		"waits":                              {age: time.Hour, status: word(jobs.StatePending, "PENDING"), want: jobs.StatePending, code: 8, asked: 1},
		"starts":                             {age: time.Hour, status: running, want: jobs.StatePending, code: 8, asked: 1},
		"a word nobody knows":                {age: time.Hour, status: word("", "SPECIAL_EXIT"), want: jobs.StatePending, code: 8, asked: 1},
		"cancelled while it waits":           {age: time.Hour, cancel: true, status: word(jobs.StateCancelled, "CANCELLED"), want: jobs.StateCancelled, code: 130, reason: "cancelled before it started", asked: 1},
		"scancelled while it waits":          {age: time.Hour, status: word(jobs.StateCancelled, "CANCELLED"), want: jobs.StateCancelled, code: 130, reason: "in the scheduler before it started", asked: 1},
		"failed before its runner":           {age: time.Hour, status: failed, want: jobs.StateError, code: 5, reason: "before its runner began (FAILED)", asked: 1},
		"completed before its runner":        {age: time.Hour, status: word(jobs.StateCompleted, "COMPLETED"), want: jobs.StateError, code: 5, reason: "(COMPLETED)", asked: 1},
		"node failed before its runner":      {age: time.Hour, status: word(jobs.StateError, "NODE_FAIL"), want: jobs.StateError, code: 5, reason: "(NODE_FAIL)", asked: 1},
		"the program may not run":            {age: time.Hour, status: jobs.Status{State: jobs.StateFailed, NativeState: "FAILED", Code: 126, Node: "c1"}, want: jobs.StateError, code: 78, reason: "cannot be run from", asked: 1},
		"the script could not prepare":       {age: time.Hour, status: jobs.Status{State: jobs.StateFailed, NativeState: "FAILED", Code: 78}, want: jobs.StateError, code: 78, log: "ERROR: no such module\nberth: on c1 this \x1b[1mmodule does not load: x\n", reason: "could not prepare the node: on c1 this  [1mmodule does not load: x", asked: 1},
		"what nobody has":                    {age: time.Hour, status: jobs.Status{State: jobs.StateFailed, NativeState: "FAILED", Reason: "BadConstraints", Class: jobs.ClassPolicy, Explanation: "ended: no node has what it asks for", Hint: "ask for less"}, want: jobs.StateError, code: 5, reason: "(FAILED, BadConstraints): it ended: no node has", asked: 1},
		"not shown yet":                      {age: 59 * time.Second, forget: true, want: jobs.StatePending, code: 8, asked: 1},
		"forgotten while it waits":           {age: 60 * time.Second, forget: true, want: jobs.StateLost, code: 5, reason: "no runner began it", asked: 1},
		"forgotten and cancelled":            {age: 3 * time.Second, cancel: true, forget: true, want: jobs.StateCancelled, code: 130, reason: "cancelled before it started", asked: 1},
		"runs":                               {claimed: true, age: 10 * time.Second, want: jobs.StateRunning, code: 8},
		"runs and is quiet":                  {claimed: true, age: time.Hour, status: running, want: jobs.StateRunning, code: 8, asked: 1},
		"a clock far ahead":                  {claimed: true, age: -time.Hour, status: running, want: jobs.StateRunning, code: 8, asked: 1},
		"fresh although failed, not asked":   {claimed: true, age: 24 * time.Second, status: failed, want: jobs.StateRunning, code: 8},
		"quiet and failed":                   {claimed: true, age: 25 * time.Second, status: failed, want: jobs.StateLost, code: 5, reason: "without a record; the scheduler says FAILED", asked: 1},
		"quiet and completed":                {claimed: true, age: 25 * time.Second, status: word(jobs.StateCompleted, "COMPLETED"), want: jobs.StateLost, code: 5, reason: "COMPLETED", asked: 1},
		"quiet and out of time":              {claimed: true, age: 25 * time.Second, status: word(jobs.StateTimeout, "TIMEOUT"), want: jobs.StateTimeout, code: 124, reason: "TIMEOUT", asked: 1},
		"quiet and out of memory":            {claimed: true, age: 25 * time.Second, status: word(jobs.StateOutOfMemory, "OUT_OF_MEMORY"), want: jobs.StateOutOfMemory, code: 1, reason: "OUT_OF_MEMORY", asked: 1},
		"quiet and cancelled":                {claimed: true, cancel: true, age: 25 * time.Second, status: failed, want: jobs.StateCancelled, code: 130, reason: "FAILED", asked: 1},
		"the node is cut off":                {claimed: true, age: 179 * time.Second, status: word(jobs.StateError, "NODE_FAIL"), want: jobs.StateRunning, code: 8, reason: "the scheduler says NODE_FAIL; its runner has not", asked: 1},
		"the node did not boot":              {claimed: true, age: 179 * time.Second, status: word(jobs.StateError, "BOOT_FAIL"), want: jobs.StateRunning, code: 8, reason: "BOOT_FAIL", asked: 1},
		"the node is cut off for good":       {claimed: true, age: 180 * time.Second, status: word(jobs.StateError, "NODE_FAIL"), want: jobs.StateError, code: 5, reason: "NODE_FAIL", asked: 1},
		"with another beat, cut off":         {claimed: true, beat: time.Second, age: 17 * time.Second, status: word(jobs.StateError, "NODE_FAIL"), want: jobs.StateRunning, code: 8, reason: "the scheduler says NODE_FAIL; its runner has not", asked: 1},
		"with another beat, for good":        {claimed: true, beat: time.Second, age: 18 * time.Second, status: word(jobs.StateError, "NODE_FAIL"), want: jobs.StateError, code: 5, reason: "NODE_FAIL", asked: 1},
		"with another beat, ended":           {claimed: true, beat: time.Second, age: 5 * time.Second, status: failed, want: jobs.StateLost, code: 5, reason: "FAILED", asked: 1},
		"forgotten and quiet":                {claimed: true, age: 179 * time.Second, forget: true, want: jobs.StateRunning, code: 8, asked: 1},
		"forgotten and silent":               {claimed: true, age: 180 * time.Second, forget: true, want: jobs.StateLost, code: 5, reason: "silent since 2026-01-02T0", asked: 1},
		"forgotten, silent and to be ended":  {claimed: true, cancel: true, age: 180 * time.Second, forget: true, want: jobs.StateCancelled, code: 130, reason: "silent since", asked: 1},
		"requeued: its scheduler lets it go": {claimed: true, age: time.Hour, status: word(jobs.StatePending, "PENDING"), want: jobs.StateRunning, code: 8, asked: 1},
	} {
		t.Run(strings.NewReplacer(",", "", ":", "").Replace(name), func(t *testing.T) {
			f := newFixture(t)
			r := f.submit(at(task(func(t *jobs.Task) { t.Env = []string{"TOKEN"} }), jobs.Place{Profile: jobs.Profile{Beat: c.beat}}), Choice{})
			tree := filepath.Join(r.Current().Dir, workspace.WorkDir, ".git")
			if c.claimed {
				f.claim(r)
				must(t, os.MkdirAll(tree, 0o700))
			}
			if c.cancel {
				_, err := store.SetCancel(r.Dir, jobs.Cancel{Version: 1, Time: f.now()})
				must(t, err)
			}
			if c.log != "" {
				must(t, os.WriteFile(filepath.Join(r.Current().Dir, jobs.SchedulerLog), []byte(c.log), 0o600))
			}
			f.pass(c.age)
			if c.forget {
				f.slurm.Forget(r.Current().Info.Name)
			} else {
				f.slurm.Set(r.Current().Info.Name, c.status)
			}
			v := f.see(r)
			if v.State != c.want || v.AskError != nil || !v.AsOf.Equal(f.now()) {
				t.Errorf("it is %s, %v, as of %v; want %s", v.State, v.AskError, v.AsOf, c.want)
			}
			if got := jobs.CodeOfRecord(v.Record); got != c.code {
				t.Errorf("code %d, want %d", got, c.code)
			}
			if _, err := os.Lstat(tree); c.claimed && (err == nil) != !c.want.Final() {
				t.Errorf("the task's .git: %v", err) // who works with it may live
			}
			if n := f.slurm.Calls().Status; n != c.asked {
				t.Errorf("asked %d times", n)
			}
			if v.Asked != (c.asked > 0 && !c.forget) || v.Asked && v.Status.NativeState != c.status.NativeState {
				t.Errorf("asked %t, word %s", v.Asked, v.Status.NativeState)
			}
			text := v.Note
			if d := v.Current().Verdict; d != nil {
				text = d.Reason
				if !c.want.Final() || d.Version != 1 || !d.Time.Equal(f.now()) || c.want != jobs.StateCancelled && d.Hint == "" {
					t.Errorf("the verdict %+v", d)
				}
			} else if c.want.Final() {
				t.Error("no verdict")
			}
			if !strings.Contains(text, c.reason) || c.reason == "" && text != "" {
				t.Errorf("said %q, want %q", text, c.reason)
			}
			// What will not start leaves no passed values.
			if _, err := os.Stat(filepath.Join(r.Current().Dir, "env")); (err == nil) == c.want.Final() {
				t.Errorf("passed values: %v", err)
			}
			// Said once, it is not asked or said again.
			if again := f.see(r); again.State != c.want || c.want.Final() && f.slurm.Calls().Status != c.asked {
				t.Errorf("a second time it is %s", again.State)
			}
		})
	}
}

// TestNeverConfirmed is about submissions whose submitter was killed.
func TestNeverConfirmed(t *testing.T) {
	lost := func(f *fixture) *jobs.Record {
		f.slurm.LoseReplies, f.slurm.findFails = 1, -1
		r, err := f.Submit(f.t.Context(), f.plan(task(), Choice{}), task())
		if r == nil || jobs.KindOf(err) != jobs.KindUnclear {
			f.t.Fatal(err)
		}
		f.slurm.findFails = 0
		return r
	}
	for name, c := range map[string]struct {
		age     time.Duration
		forget  bool
		claimed bool
		cancel  bool
		want    jobs.State
		text    string
	}{
		"found":              {age: time.Minute, want: jobs.StatePending},
		"found long after":   {age: time.Hour, want: jobs.StatePending},
		"sbatch may go on":   {age: 5 * time.Minute, forget: true, want: jobs.StateSubmitting, text: "not confirmed"},
		"not submitted":      {age: 11 * time.Minute, forget: true, want: jobs.StateError, text: "never submitted"},
		"cancelled":          {age: 11 * time.Minute, forget: true, cancel: true, want: jobs.StateCancelled, text: "cancelled before"},
		"runs all the same":  {age: 60 * time.Second, forget: true, claimed: true, want: jobs.StateRunning},
		"ran, and is silent": {age: 11 * time.Minute, forget: true, claimed: true, want: jobs.StateLost, text: "silent"},
	} {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			f := newFixture(t)
			r := lost(f)
			if c.forget {
				f.slurm.Forget(r.Current().Info.Name)
			}
			if c.claimed {
				f.claim(r)
			}
			if c.cancel {
				_, err := store.SetCancel(r.Dir, jobs.Cancel{Version: 1})
				must(t, err)
			}
			f.pass(c.age)
			v := f.see(r)
			text := v.Note
			if d := v.Current().Verdict; d != nil {
				text = d.Reason
			}
			if v.State != c.want || !strings.Contains(text, c.text) {
				t.Errorf("it is %s: %q", v.State, text)
			}
			if c.want == jobs.StatePending && f.load(r).Current().Submitted == nil {
				t.Error("what was found is not recorded")
			}
			if n := f.slurm.Calls().Submit; n != 1 {
				t.Errorf("submitted %d times", n)
			}
		})
	}

	// One that is being submitted at this moment is left alone.
	f := newFixture(t)
	r := lost(f)
	info := f.load(r).Current().Info
	f.mu.Lock()
	f.clock = info.Created.Add(time.Second)
	f.mu.Unlock()
	before := f.slurm.Calls()
	if v := f.see(r); v.State != jobs.StateSubmitting || f.slurm.Calls() != before {
		t.Errorf("it is %s, asked %+v", v.State, f.slurm.Calls())
	}
}

// TestAppears: something is recorded between the look at the ledger and the
// verdict, and wins.
func TestAppears(t *testing.T) {
	for name, c := range map[string]struct {
		claimed bool
		appears func(f *fixture, r *jobs.Record)
		want    jobs.State
	}{
		"the exit": {true, func(f *fixture, r *jobs.Record) { f.exit(r, jobs.StateCompleted, 0) }, jobs.StateCompleted},
		"a beat":   {true, func(f *fixture, r *jobs.Record) { f.beat(r) }, jobs.StateRunning},
		"a claim":  {false, func(f *fixture, r *jobs.Record) { f.claim(r) }, jobs.StateRunning},
		"another's verdict": {true, func(f *fixture, r *jobs.Record) {
			_, err := store.SetVerdict(r.Current().Dir, jobs.Verdict{Version: 1, State: jobs.StateTimeout, Reason: "another's"})
			must(f.t, err)
		}, jobs.StateTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r := f.submit(task(), Choice{})
			if c.claimed {
				f.claim(r)
			}
			f.pass(time.Hour)
			f.slurm.Set(r.Current().Info.Name, word(jobs.StateFailed, "FAILED"))
			f.slurm.onStatus = func() { c.appears(f, r) }
			v := f.see(r)
			if v.State != c.want || (v.Current().Verdict != nil) != (name == "another's verdict") {
				t.Errorf("it is %s, %+v", v.State, v.Current().Verdict)
			}
		})
	}
}

// TestExitAfterVerdict: a node that was cut off comes back and has its word.
func TestExitAfterVerdict(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	f.claim(r)
	f.pass(time.Hour)
	f.slurm.Set(r.Current().Info.Name, word(jobs.StateError, "NODE_FAIL"))
	if v := f.see(r); v.State != jobs.StateError {
		t.Errorf("it is %s", v.State)
	}
	f.exit(r, jobs.StateCompleted, 0)
	if v := f.see(r); v.State != jobs.StateCompleted || jobs.CodeOfRecord(v.Record) != 0 {
		t.Errorf("it is %s", v.State)
	}
}

// TestVerdictUnwritable: what cannot be recorded is not claimed.
func TestVerdictUnwritable(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	f.pass(time.Hour)
	f.slurm.Set(r.Current().Info.Name, word(jobs.StateCancelled, "CANCELLED"))
	rec := f.load(r)
	must(t, os.Mkdir(filepath.Join(r.Current().Dir, "verdict.json"), 0o700))
	v := f.Reconcile(t.Context(), []*jobs.Record{rec})[0]
	if v.State != jobs.StatePending || v.Note == "" || v.AskError != nil {
		t.Errorf("it is %s, %q, %v", v.State, v.Note, v.AskError)
	}
}
