package engine

import (
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// afterTask waits for these.
func afterTask(words ...string) jobs.Task {
	return task(func(t *jobs.Task) { t.After = words })
}

// behindOf are the scheduler's jobs that the n-th launch is held back by.
func (f *fixture) behindOf(n int) string {
	f.t.Helper()
	l := f.launches()
	if n >= len(l) {
		f.t.Fatalf("there are %d launches", len(l))
	}
	var ids []string
	for _, h := range l[n].Behind {
		ids = append(ids, h.NativeID)
	}
	return strings.Join(ids, " ")
}

func TestAfterAtSubmit(t *testing.T) {
	f := newFixture(t)
	first, second := f.submit(task(), Choice{}), f.submit(task(), Choice{})
	done, failed := f.submit(task(), Choice{}), f.submit(task(), Choice{})
	f.exit(done, jobs.StateCompleted, 0)
	f.exit(failed, jobs.StateFailed, 1)
	elsewhere := f.submit(at(task(), jobs.Place{Scheduler: jobs.SchedulerLocal}), Choice{})

	r := f.submit(afterTask("ok:"+jobs.Short(first.Spec.ID)+",any:"+second.Spec.ID, done.Spec.ID, "notok:"+failed.Spec.ID), Choice{})
	if got := len(r.Spec.After); got != 2 || r.Spec.Retry == nil || r.Spec.Retry.Again() || f.behindOf(4) != "1 2" || !strings.Contains(strings.Join(r.Spec.Notes, "\n"), jobs.Short(done.Spec.ID)+" (ok) has ended already") {
		t.Errorf("it waits for %d jobs, behind %q, retry %+v, notes %q", got, f.behindOf(4), r.Spec.Retry, r.Spec.Notes)
	}
	if v := f.see(r); v.Waits.String() != jobs.Short(first.Spec.ID)+" (ok), "+jobs.Short(second.Spec.ID)+" (any)" {
		t.Errorf("it waits for %q", v.Waits.String())
	}
	// What another scheduler has is told by the ledger alone.
	r = f.submit(afterTask(elsewhere.Spec.ID), Choice{})
	if len(r.Spec.After) != 1 || f.behindOf(5) != "" {
		t.Errorf("%+v behind %q", r.Spec.After, f.behindOf(5))
	}
	if r = f.submit(afterTask(done.Spec.ID), Choice{}); len(r.Spec.After) != 0 || r.Spec.Retry != nil {
		t.Errorf("%+v %+v", r.Spec.After, r.Spec.Retry)
	}
	for words, want := range map[string]string{
		failed.Spec.ID:          "has ended as failed",
		"notok:" + done.Spec.ID: "has ended as completed",
		"nope:1":                "does not say ok, any or notok",
		"ffffffff":              "there is no job",
		"0":                     "ambiguous",
		"ok:" + first.Spec.ID + ",any:" + jobs.Short(first.Spec.ID): "is to end as ok, too",
	} {
		if _, err := f.Plan(t.Context(), afterTask(words), Choice{}, false); err == nil || !strings.Contains(err.Error(), want) || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v", words, err)
		}
	}
	// Of a script that is only shown no one is asked.
	asked := f.slurm.Calls()
	s, err := f.Plan(t.Context(), afterTask(first.Spec.ID), Choice{}, true)
	must(t, err)
	if _, err := f.Render(t.Context(), s); err != nil || f.slurm.Calls() != asked {
		t.Errorf("%v %+v %+v", err, f.slurm.Calls(), asked)
	}
}

// wait is what the runner's gate records.
func (f *fixture) wait(r *jobs.Record) {
	f.t.Helper()
	f.claim(r)
	_, err := store.SetExit(r.Current().Dir, jobs.ExitRecord{Version: 1, Attempt: r.Current().Info.ID, State: jobs.StateError, Class: jobs.ClassWaiting, Code: jobs.CodePending, Reason: "it waits", Ended: f.now()})
	must(f.t, err)
}

// TestAfterRetriedParent: a parent that is tried again does not break the chain,
// and the child costs its credits nothing.
func TestAfterRetriedParent(t *testing.T) {
	f := newFixture(t)
	parent := f.submit(task(func(t *jobs.Task) { t.Retry = jobs.DefaultRetry() }), Choice{})
	child := f.submit(afterTask(parent.Spec.ID), Choice{})
	if f.behindOf(1) != "1" {
		t.Fatalf("behind %q", f.behindOf(1))
	}
	// The parent's node is lost; its next attempt is submitted.
	_, err := store.SetVerdict(parent.Current().Dir, jobs.Verdict{Version: 1, State: jobs.StateError, Class: jobs.ClassNode, Word: "NODE_FAIL"})
	must(t, err)
	f.wait(child)
	// Whoever looks at the child looks at the parent.
	v := f.see(child)
	if p := f.load(parent); len(p.Attempts) != 2 || p.Current().Submitted == nil {
		t.Fatalf("the parent has %d attempts", len(p.Attempts))
	}
	if len(v.Attempts) != 2 || v.State != jobs.StatePending || v.Waits.String() == "" {
		t.Fatalf("the child has %d attempts and is %s; it waits for %q", len(v.Attempts), v.State, v.Waits.String())
	}
	last := f.launches()[3]
	if f.behindOf(3) != f.load(parent).Current().Submitted.Handle.NativeID || last.Wait != 0 || last.Requeue {
		t.Errorf("behind %q: %+v", f.behindOf(3), last)
	}
	f.claim(f.load(parent))
	f.exit(f.load(parent), jobs.StateCompleted, 0)
	if v = f.see(child); v.Waits.String() != "" {
		t.Errorf("it waits for %q", v.Waits.String())
	}
}

// TestAfterElsewhere: where the scheduler cannot hold a job back, it begins
// again a while later.
func TestAfterElsewhere(t *testing.T) {
	f := newFixture(t)
	parent := f.submit(at(task(), jobs.Place{Scheduler: jobs.SchedulerLocal}), Choice{})
	f.claim(parent)
	child := f.submit(afterTask(parent.Spec.ID), Choice{})
	for n := 1; n <= 3; n++ {
		f.beat(parent)
		f.wait(f.load(child))
		v := f.see(child)
		l := f.launches()
		if len(v.Attempts) != n+1 || l[n].Wait == 0 {
			t.Fatalf("%d attempts, held back for %v", len(v.Attempts), l[n].Wait)
		}
		f.pass(time.Minute)
	}
}

// TestAfterNever: a job that waits for what can never be ends with that reason,
// and so do those that wait for it in turn.
func TestAfterNever(t *testing.T) {
	f := newFixture(t)
	parent := f.submit(task(), Choice{})
	child := f.submit(afterTask(parent.Spec.ID), Choice{})
	grandchild := f.submit(afterTask("ok:"+child.Spec.ID), Choice{})
	other := f.submit(afterTask("notok:"+child.Spec.ID), Choice{})
	if d, err := f.Dependents([]*jobs.Record{f.load(parent)}); err != nil || d[parent.Spec.ID] == nil || d[parent.Spec.ID].Spec.ID != child.Spec.ID {
		t.Errorf("%+v %v", d, err)
	}
	f.claim(parent)
	f.exit(parent, jobs.StateFailed, 1)
	v := f.see(grandchild) // its forebears are brought up to date with it, and before it
	if v.State != jobs.StateError || !strings.Contains(v.Current().Verdict.Reason, jobs.Short(child.Spec.ID)+" (ok), which it waits for, has ended as error") {
		t.Errorf("the grandchild is %s: %+v", v.State, v.Current().Verdict)
	}
	c := f.load(child)
	if jobs.StateOf(c) != jobs.StateError || jobs.CodeOfRecord(c) != jobs.CodeTaskFailed || c.Current().Verdict.Reason != "job "+jobs.Short(parent.Spec.ID)+" (ok), which it waits for, has ended as failed" || c.Current().Verdict.Hint == "" {
		t.Errorf("the child is %s: %+v", jobs.StateOf(c), c.Current().Verdict)
	}
	if f.slurm.Calls().Cancel == 0 {
		t.Error("its place in the queue was not taken back")
	}
	if v = f.see(other); v.State != jobs.StatePending || v.Waits.String() != "" {
		t.Errorf("the other is %s, waits for %q", v.State, v.Waits.String())
	}
}

// TestAfterDependents: while a job runs that may have to begin again, the one
// that it began behind is still needed: its next attempt reads how that ended.
func TestAfterDependents(t *testing.T) {
	f := newFixture(t)
	parent := f.submit(task(), Choice{})
	again := f.submit(task(func(t *jobs.Task) { t.After, t.Retry = []string{parent.Spec.ID}, jobs.DefaultRetry() }), Choice{})
	once := f.submit(task(func(t *jobs.Task) { t.After, t.Retry = []string{parent.Spec.ID}, &jobs.Retry{} }), Choice{})
	f.claim(parent)
	f.exit(parent, jobs.StateCompleted, 0)
	needed := func() *jobs.Record {
		t.Helper()
		d, err := f.Dependents([]*jobs.Record{f.load(parent)})
		must(t, err)
		return d[parent.Spec.ID]
	}
	f.claim(once)
	if d := needed(); d == nil || d.Spec.ID != again.Spec.ID || !Waits(d) {
		t.Errorf("before it runs: %+v", d)
	}
	f.claim(again)
	if d := needed(); d == nil || d.Spec.ID != again.Spec.ID || Waits(d) {
		t.Errorf("while it runs: %+v", d)
	}
	f.exit(again, jobs.StateCompleted, 0)
	f.see(again)
	if d := needed(); d != nil {
		t.Errorf("after it: %+v", d)
	}
}
