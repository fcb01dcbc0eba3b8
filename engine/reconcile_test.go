package engine

import (
	"errors"
	"testing"
	"time"

	"berth/jobs"
)

// TestAskFails: a query that fails changes nothing, and the state is as old as
// what was last recorded.
func TestAskFails(t *testing.T) {
	f := newFixture(t)
	created := f.now()
	waits := f.submit(task(), Choice{})
	f.pass(time.Minute)
	runs := f.submit(task(), Choice{})
	f.pass(time.Minute)
	f.claim(runs)
	f.pass(10 * time.Second)
	f.beat(runs)
	beat := f.now()
	ended := f.submit(task(), Choice{})
	f.exit(ended, jobs.StateCompleted, 0)
	f.pass(time.Hour)
	down := errors.New("slurmctld does not answer")
	f.slurm.Queries = down
	recs := []*jobs.Record{f.load(waits), f.load(runs), f.load(ended)}
	views := f.Reconcile(t.Context(), recs)
	for i, want := range []struct {
		state jobs.State
		asOf  time.Time
		err   error
	}{{jobs.StatePending, created, down}, {jobs.StateRunning, beat, down}, {jobs.StateCompleted, f.now(), nil}} {
		v := views[i]
		if v.State != want.state || !v.AsOf.Equal(want.asOf) || !errors.Is(v.AskError, want.err) || v.Asked {
			t.Errorf("%d: %s as of %v, %v; want %s as of %v", i, v.State, v.AsOf, v.AskError, want.state, want.asOf)
		}
		if v.Current().Verdict != nil {
			t.Errorf("%d: a verdict %+v", i, v.Current().Verdict)
		}
	}
	if n := f.slurm.Calls().Status; n != 1 {
		t.Errorf("asked %d times", n)
	}

	// Half an answer counts for the jobs that are in it.
	f.slurm.Queries = nil
	f.slurm.partial = errors.New("sacct: no accounting")
	f.slurm.Set(runs.Current().Info.Name, word(jobs.StateTimeout, "TIMEOUT"))
	f.slurm.Forget(waits.Current().Info.Name)
	views = f.Reconcile(t.Context(), recs[:2])
	if v := views[0]; v.State != jobs.StatePending || v.AskError == nil {
		t.Errorf("%s, %v", v.State, v.AskError)
	}
	if v := views[1]; v.State != jobs.StateTimeout || v.AskError != nil {
		t.Errorf("%s, %v", v.State, v.AskError)
	}

	// A scheduler that this program does not have.
	f.Schedulers = f.Schedulers[1:]
	if v := f.see(waits); v.State != jobs.StatePending || v.AskError == nil {
		t.Errorf("%s, %v", v.State, v.AskError)
	}
}

// TestLooksFail: a look by name that fails keeps the others from nothing.
func TestLooksFail(t *testing.T) {
	f := newFixture(t)
	f.slurm.LoseReplies, f.slurm.findFails = 1, -1
	unclear, _ := f.Submit(t.Context(), f.plan(task(), Choice{}), task())
	waits := f.submit(task(), Choice{})
	f.pass(time.Hour)
	f.slurm.Set(waits.Current().Info.Name, word(jobs.StateCancelled, "CANCELLED"))
	views := f.Reconcile(t.Context(), []*jobs.Record{f.load(unclear), f.load(waits)})
	if views[0].State != jobs.StateSubmitting || views[0].AskError == nil || views[1].State != jobs.StateCancelled || views[1].AskError != nil {
		t.Errorf("%s, %v; %s, %v", views[0].State, views[0].AskError, views[1].State, views[1].AskError)
	}
}

// TestOneQuestion: many jobs are one question to each scheduler.
func TestOneQuestion(t *testing.T) {
	f := newFixture(t)
	var recs []*jobs.Record
	for i := range 30 {
		recs = append(recs, f.submit(at(task(), jobs.Place{Scheduler: []string{"slurm", "local"}[i%2]}), Choice{}))
	}
	f.slurm.LoseReplies, f.slurm.findFails = 2, -1
	for range 2 {
		r, _ := f.Submit(t.Context(), f.plan(at(task(), jobs.Place{Scheduler: "slurm"}), Choice{}), task())
		recs = append(recs, r)
	}
	f.slurm.findFails = 0
	before := f.slurm.Calls()
	f.pass(time.Minute)
	for _, v := range f.Reconcile(t.Context(), recs) {
		if v.State != jobs.StatePending || !v.Asked {
			t.Errorf("%s, asked %t", v.State, v.Asked)
		}
	}
	if c := f.slurm.Calls(); c.Status != 1 || c.Find != before.Find+1 {
		t.Errorf("slurm was asked %+v", c)
	}
	if c := f.queue.Calls(); c.Status != 1 || c.Find != 0 {
		t.Errorf("the queue was asked %+v", c)
	}
}

func TestReconcileNothing(t *testing.T) {
	f := newFixture(t)
	if v := f.Reconcile(t.Context(), nil); len(v) != 0 {
		t.Error(v)
	}
	empty := &jobs.Record{Spec: jobs.Spec{Place: jobs.Place{Scheduler: "slurm"}}}
	v := f.Reconcile(t.Context(), []*jobs.Record{empty})
	if v[0].State != jobs.StateSubmitting || f.slurm.Calls().Status != 0 {
		t.Errorf("%+v", v[0])
	}
	if err := f.Cancel(t.Context(), []View{{Record: &jobs.Record{Dir: t.TempDir()}, State: jobs.StateSubmitting}}, "x"); err != nil {
		t.Error(err)
	}
}
