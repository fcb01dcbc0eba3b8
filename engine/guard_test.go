package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
)

// aside keeps what the fixture is to have done by processes of their own.
func (f *fixture) aside() *[][]string {
	var asked [][]string
	f.Aside = func(log string, words ...string) error {
		if !strings.HasSuffix(log, "/"+store.FileReaperLog) {
			f.t.Errorf("its log is %s", log)
		}
		asked = append(asked, words)
		return nil
	}
	return &asked
}

// TestGuardAside: the id of a job is there before its reaper is, which another
// process submits.
func TestGuardAside(t *testing.T) {
	f := newFixture(t)
	asked := f.aside()
	r := f.submit(task(again), Choice{})
	if len(f.reapers()) != 0 || len(*asked) != 1 || !slices.Equal((*asked)[0], []string{"follow", "--guard", r.Spec.ID}) {
		t.Fatalf("%v, %+v", *asked, f.reapers())
	}
	f.submit(task(), Choice{})
	f.submit(at(task(again), jobs.Place{Scheduler: jobs.SchedulerLocal}), Choice{})
	if len(*asked) != 1 {
		t.Errorf("for jobs that need none: %v", *asked)
	}
	f.Guard(t.Context(), f.load(r))
	if a := f.load(r).Current(); a.Reaper == nil || len(f.reapers()) != 1 {
		t.Errorf("%+v", a)
	}
	// No such process can be started.
	f.Aside = func(string, ...string) error { return errors.New("too many processes") }
	if f.submit(task(again), Choice{}); len(f.reapers()) != 2 {
		t.Errorf("%d reapers", len(f.reapers()))
	}
}

// TestGuardLost has that process killed before it did anything: who looks at the
// job some time later has it done, once it is sure that no one does.
func TestGuardLost(t *testing.T) {
	f := newFixture(t)
	asked := f.aside()
	r := f.submit(task(again), Choice{})
	f.pass(guarding - time.Second)
	if f.see(r); len(*asked) != 1 {
		t.Errorf("too early: %v", *asked)
	}
	v := f.see(r)
	x := f.Explain(t.Context(), &v)
	if n := x.Next[len(x.Next)-1]; n.Who != ActorAnybody || !strings.Contains(n.Does, "looks after it") {
		t.Errorf("%+v", x.Next)
	}
	f.pass(time.Second)
	if f.see(r); len(*asked) != 2 || !slices.Equal((*asked)[1], []string{"follow", "--guard", r.Spec.ID}) {
		t.Fatalf("%v", *asked)
	}
	// While that one waits for the scheduler, a client that waits begins no other.
	f.pass(guardAgain - time.Second)
	if f.see(r); len(*asked) != 2 {
		t.Errorf("too many: %v", *asked)
	}
	f.pass(time.Second)
	if f.see(r); len(*asked) != 3 {
		t.Errorf("%v", *asked)
	}
	f.Guard(t.Context(), f.load(r))
	f.pass(guardAgain)
	if f.see(r); len(*asked) != 3 {
		t.Errorf("it has one: %v", *asked)
	}
	// What could not be done is told, and not tried by each who looks.
	r = f.submit(task(again), Choice{})
	must(t, store.SetUnfollowed(r.Current().Dir, jobs.Unfollowed{Version: 1, Reason: "x"}))
	f.pass(time.Minute)
	if f.see(r); len(*asked) != 4 {
		t.Errorf("%v", *asked)
	}
}

// TestGuardLostFound: whoever finds out that a killed submitter had its job
// submitted has it looked after, too.
func TestGuardLostFound(t *testing.T) {
	f := newFixture(t)
	asked := f.aside()
	f.slurm.Fault(func(s *jobstest.FakeScheduler) { s.LoseReplies = 1 })
	f.slurm.findFails = -1
	r, err := f.Submit(t.Context(), f.plan(task(again), Choice{}), task(again))
	if jobs.KindOf(err) != jobs.KindUnclear || len(*asked) != 0 {
		t.Fatal(err, *asked)
	}
	f.slurm.findFails = 0
	f.pass(time.Minute)
	if v := f.see(r); v.Current().Submitted == nil || len(*asked) != 1 {
		t.Errorf("%+v, %v", v.Current(), *asked)
	}
}

// TestGuardCancelled: the reaper of a job that was ended while it was submitted
// is taken away again, whoever of the two came first.
func TestGuardCancelled(t *testing.T) {
	f := newFixture(t)
	f.aside()
	gone := func(r *jobs.Record) {
		t.Helper()
		h := f.load(r).Current().Reaper.Handle
		if st, err := f.slurm.Status(t.Context(), []jobs.Handle{h}); err != nil || st[h.Name].State != jobs.StateCancelled {
			t.Errorf("%+v, %v", st, err)
		}
	}
	r := f.submit(task(again), Choice{})
	early := f.load(r)
	must(t, f.Cancel(t.Context(), []View{f.see(r)}, "ada"))
	if f.Guard(t.Context(), f.load(r)); len(f.reapers()) != 0 {
		t.Errorf("%+v", f.reapers())
	}
	f.Guard(t.Context(), early)
	gone(r)
	r = f.submit(task(again), Choice{})
	v := f.see(r)
	f.Guard(t.Context(), f.load(r))
	must(t, f.Cancel(t.Context(), []View{v}, "ada"))
	gone(r)
	// That of one that runs stays.
	r = f.submit(task(again), Choice{})
	f.claim(r)
	must(t, f.Cancel(t.Context(), []View{f.see(r)}, "ada"))
	f.Guard(t.Context(), f.load(r))
	h := f.load(r).Current().Reaper.Handle
	if st, err := f.slurm.Status(t.Context(), []jobs.Handle{h}); err != nil || st[h.Name].State != jobs.StatePending {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestGuardMute: where nodes may not submit, the standbys come in the same way,
// and no one else submits them meanwhile.
func TestGuardMute(t *testing.T) {
	f := newFixture(t)
	asked := f.aside()
	r := f.submit(at(task(again), muteSite), Choice{})
	if f.see(r); len(f.ahead()) != 0 || len(*asked) != 1 {
		t.Fatalf("%v, %+v", *asked, f.ahead())
	}
	f.pass(guarding)
	if v := f.see(r); len(f.ahead()) != mostStandbys || v.Current().Standby == nil || len(*asked) != 1 {
		t.Errorf("%v, %+v", *asked, f.ahead())
	}
}
