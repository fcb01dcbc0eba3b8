package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
)

// ahead are the launches of standbys.
func (f *fixture) ahead() []jobs.Launch {
	return slices.DeleteFunc(f.slurm.Launches(), func(l jobs.Launch) bool { return !strings.HasPrefix(l.Name, "berth-next") })
}

// muteSite is one whose nodes may not submit.
var muteSite = jobs.Place{Profile: jobs.Profile{Name: "site", NodesMute: true}}

// TestStandby leaves the next attempt to a standby, which was submitted behind the
// current attempt and with what that has, as long as Slurm has one that fits.
func TestStandby(t *testing.T) {
	f := newFixture(t)
	r := f.submit(at(task(again, gib), muteSite), Choice{})
	a, got := f.load(r).Current(), f.ahead()
	if len(got) != mostStandbys || a.Standby.Handles[0].Name != jobs.StandbyName(a.Info.ID, 1) {
		t.Fatalf("%+v, %+v", got, a)
	}
	first := f.launches()[0]
	l := got[0]
	if l.Resources != first.Resources || !isBehind(l, a.Submitted.Handle) || l.Dir != a.Dir || l.Log != store.FileStandbyLog ||
		!slices.Equal(l.Argv[:5], []string{"/bin/berth-node", "runner", "--standby", a.Dir, "--follow"}) || !slices.Equal(l.Argv[5:], first.Argv[5:]) {
		t.Errorf("%+v\n%+v", l, first)
	}
	f.claim(r)
	f.exitWith(r, jobs.ClassPreempted)
	for _, h := range a.Standby.Handles {
		v := f.see(r)
		if len(v.Attempts) != 1 || v.Standby == nil || v.Standby.NativeID != h.NativeID || v.Unfollowed != nil || v.State != jobs.StatePending || v.Current().Unfollowed != nil {
			t.Fatalf("%s: %+v", v.State, v)
		}
		f.slurm.Set(h.Name, jobs.Status{State: jobs.StateCompleted, NativeState: "COMPLETED"})
	}
	if v := f.see(r); len(v.Attempts) != 2 || v.Standby != nil {
		t.Errorf("nobody begins it: %+v", v)
	}
}

// TestRequeuedWaits: a job that Slurm has started again is about to begin the next attempt
// itself, and no one submits another meanwhile, unless it has ended without that.
func TestRequeuedWaits(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again), Choice{})
	f.claim(r)
	a := f.load(r).Current()
	_, err := store.SetVerdict(a.Dir, jobs.Verdict{Version: 1, State: jobs.StateError, Class: jobs.ClassPreempted, Word: jobs.WordRequeued, Time: f.now()})
	must(t, err)
	now := f.load(r)
	_, err = store.SetDecision(a.Dir, jobs.Next(now, &jobs.Status{State: jobs.StateError, Class: jobs.ClassPreempted, NativeState: jobs.WordRequeued}, f.now()).Decision)
	must(t, err)
	f.slurm.Set(a.Info.Name, jobs.Status{State: jobs.StateRunning, NativeState: "RUNNING"})
	v := f.see(r)
	if len(v.Attempts) != 1 || v.Standby == nil || v.Standby.NativeID != a.Submitted.Handle.NativeID || v.Unfollowed != nil || !strings.Contains(v.Note, "requeued") {
		t.Fatalf("%s: %+v", v.State, v)
	}
	f.reap(r, 1, 0)
	if all := f.reapers(); len(all) != 2 || !isBehind(all[1], a.Submitted.Handle) {
		t.Errorf("the reaper: %+v", all)
	}
	f.slurm.Set(a.Info.Name, jobs.Status{State: jobs.StateFailed, NativeState: "FAILED"})
	if v := f.see(r); len(v.Attempts) != 2 || v.Standby != nil || len(f.launches()) != 2 {
		t.Errorf("nobody begins it: %+v", v)
	}
}

// exitWith ends an attempt for a reason of this class.
func (f *fixture) exitWith(r *jobs.Record, c jobs.Class) {
	f.t.Helper()
	_, err := store.SetExit(r.Current().Dir, jobs.ExitRecord{Version: 1, State: jobs.StateError, Class: c, Code: 5, Ended: f.now()})
	must(f.t, err)
}

// TestNodesMute submits a chain with the job, no reaper, replenishes it when
// someone looks, and takes it away with the job.
func TestNodesMute(t *testing.T) {
	f := newFixture(t)
	r := f.submit(at(task(again), muteSite), Choice{})
	a := f.load(r).Current()
	chain := f.ahead()
	if len(chain) != mostStandbys || len(f.reapers()) != 0 || len(a.Standby.Handles) != mostStandbys || !isBehind(chain[1], a.Standby.Handles[0]) {
		t.Fatalf("%+v, %+v", chain, a.Standby)
	}
	f.see(r)
	if n := len(f.ahead()); n != mostStandbys {
		t.Errorf("%d standbys after a look", n)
	}
	must(t, f.Cancel(t.Context(), []View{f.see(r)}, "ada"))
	for _, h := range a.Standby.Handles {
		if st, err := f.slurm.Status(t.Context(), []jobs.Handle{h}); err != nil || st[h.Name].State != jobs.StateCancelled {
			t.Errorf("after a cancel: %+v, %v", st, err)
		}
	}

	// An attempt that needs more is submitted by who looks, with standbys.
	r = f.submit(at(task(again, gib), muteSite), Choice{})
	f.claim(r)
	f.exitWith(r, jobs.ClassMemory)
	f.environ["SLURM_JOB_ID"] = "9"
	if v := f.see(r); len(v.Attempts) != 1 || v.Unfollowed == nil || v.Stuck() == nil {
		t.Fatalf("on a node: %+v", v)
	}
	delete(f.environ, "SLURM_JOB_ID")
	n := len(f.ahead())
	v := f.see(r)
	if len(v.Attempts) != 2 || v.Current().Standby == nil || len(f.ahead()) == n || f.ahead()[n].Resources.Memory <= jobs.GiB {
		t.Errorf("%+v", v)
	}
}

// TestNodesMuteRefused is told, and asked for again after a while.
func TestNodesMuteRefused(t *testing.T) {
	f := newFixture(t)
	f.slurm.Fault(func(s *jobstest.FakeScheduler) {
		s.Submits = func(l jobs.Launch) error {
			if l.Log != "" {
				return &jobs.Error{Kind: jobs.KindAgain, Msg: "the limit on submitted jobs"}
			}
			return nil
		}
	})
	r := f.submit(at(task(again), muteSite), Choice{})
	if f.load(r).Stuck() == nil {
		t.Fatal("nobody is told")
	}
	f.slurm.Fault(func(s *jobstest.FakeScheduler) { s.Submits = nil })
	if f.see(r); len(f.ahead()) != 0 {
		t.Error("asked for again at once")
	}
	f.pass(2 * time.Minute)
	if v := f.see(r); len(f.ahead()) != mostStandbys || v.Stuck() != nil {
		t.Errorf("%+v", v)
	}
}
