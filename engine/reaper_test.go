package engine

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
)

// reapers are the launches of reapers.
func (f *fixture) reapers() []jobs.Launch {
	return slices.DeleteFunc(f.slurm.Launches(), func(l jobs.Launch) bool { return l.Name != jobs.ReaperName(l.Attempt) })
}

func (f *fixture) reap(r *jobs.Record, attempt, looks int) View {
	f.t.Helper()
	v, err := f.Reap(f.t.Context(), f.load(r), attempt, looks)
	must(f.t, err)
	return v
}

// isBehind reports whether a launch waits for the end of this job, and no other.
func isBehind(l jobs.Launch, h jobs.Handle) bool {
	return l.Wait == 0 && len(l.Behind) == 1 && l.Behind[0].NativeID == h.NativeID
}

// TestReaper is submitted with a job, small and in the same place, and not for
// a job that has one attempt.
func TestReaper(t *testing.T) {
	f := newFixture(t)
	site := jobs.SlurmOptions{Partition: "p", Account: "a", QOS: "q", Constraint: "big", Extra: []string{"--exclusive", "--reservation=r"}}
	r := f.submit(task(again, gib, func(t *jobs.Task) { t.Slurm = site }), Choice{})
	a := f.load(r).Current()
	got := f.reapers()
	if len(got) != 1 || a.Reaper == nil || a.Reaper.Handle.Name != jobs.ReaperName(a.Info.ID) || a.Unfollowed != nil {
		t.Fatalf("%+v, %+v", got, a)
	}
	l := got[0]
	if l.Resources != (jobs.Resources{Memory: reaperMemory, Time: time.Minute}) || !reflect.DeepEqual(l.Slurm, site) || !l.Aside || !isBehind(l, a.Submitted.Handle) ||
		!slices.Equal(l.Argv, []string{"/bin/berth-node", "follow", "--reap", "--attempt", "1", "--looks", "0", r.Spec.ID}) || !slices.Equal(l.Env, []string{"BERTH_HOME=" + f.Store.Home()}) || l.Dir != a.Dir || l.Log == "" {
		t.Errorf("%+v", l)
	}
	f.Guard(t.Context(), f.load(r))
	f.submit(task(), Choice{})
	f.submit(at(task(again), jobs.Place{Scheduler: jobs.SchedulerLocal}), Choice{})
	if n := len(f.reapers()); n != 1 {
		t.Errorf("%d reapers", n)
	}
	must(t, f.Cancel(t.Context(), []View{f.see(r)}, "ada"))
	if st, err := f.slurm.Status(t.Context(), []jobs.Handle{a.Reaper.Handle}); err != nil || st[a.Reaper.Handle.Name].State != jobs.StateCancelled {
		t.Errorf("after a cancel: %+v, %v", st, err)
	}
	if rec := f.load(r); jobs.StateOf(rec) != jobs.StateCancelled || rec.Current().Decision == nil {
		t.Errorf("cancelled before it began, it is %s until somebody looks: %+v", jobs.StateOf(rec), rec.Current())
	}
}

// TestReaperOfCancelled stays for a job that runs: its runner may be killed
// before it finds the wish.
func TestReaperOfCancelled(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again), Choice{})
	f.claim(r)
	must(t, f.Cancel(t.Context(), []View{f.see(r)}, "ada"))
	reaper := f.load(r).Current().Reaper.Handle
	if st, err := f.slurm.Status(t.Context(), []jobs.Handle{reaper}); err != nil || st[reaper.Name].State != jobs.StatePending {
		t.Fatalf("%+v, %v", st, err)
	}
	f.pass(time.Hour)
	if v := f.reap(r, 1, 0); v.State != jobs.StateCancelled {
		t.Errorf("%s", v.State)
	}
}

// TestReaperRefused is no failure of the job, and told until there is one.
func TestReaperRefused(t *testing.T) {
	f := newFixture(t)
	f.slurm.Fault(func(s *jobstest.FakeScheduler) {
		s.Submits = func(l jobs.Launch) error {
			if l.Log != "" {
				return &jobs.Error{Kind: jobs.KindAgain, Msg: "the limit on submitted jobs", Hint: "wait"}
			}
			return nil
		}
	})
	r := f.submit(task(again), Choice{})
	u := f.load(r).Stuck()
	if u == nil || !strings.Contains(u.Reason, "the limit on submitted jobs") || !strings.Contains(u.Hint, "wait; then berth follow ") {
		t.Fatalf("%+v", u)
	}
	f.slurm.Fault(func(s *jobstest.FakeScheduler) { s.Submits = nil })
	f.Guard(t.Context(), f.load(r))
	if rec := f.load(r); rec.Stuck() != nil || rec.Current().Reaper == nil {
		t.Errorf("%+v", rec.Current())
	}
}

// TestReap has a runner die without a word: the reaper waits in the queue and
// not on a node until that is sure, and begins the next attempt.
func TestReap(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again), Choice{})
	f.claim(r)
	f.slurm.Set(r.Current().Info.Name, jobs.Status{State: jobs.StateError, NativeState: "NODE_FAIL"})
	if v := f.reap(r, 1, 0); v.State != jobs.StateRunning {
		t.Fatalf("%s", v.State)
	}
	again := f.reapers()
	if l := again[len(again)-1]; len(again) != 2 || l.Wait != 181*time.Second || !slices.Contains(l.Argv, "1") || l.Name != again[0].Name {
		t.Fatalf("%+v", again)
	}
	f.pass(181 * time.Second)
	v := f.reap(r, 1, 1)
	if v.State != jobs.StatePending || len(v.Attempts) != 2 || v.Current().Reaper == nil || v.Attempts[0].Decision.Class != jobs.ClassNode {
		t.Fatalf("%s: %+v", v.State, v.Attempts)
	}
	// The one of the first attempt leaves the second to its own.
	n := len(f.reapers())
	f.reap(r, 1, 2)
	if len(f.reapers()) != n {
		t.Errorf("%d reapers, and then %d", n, len(f.reapers()))
	}
}

// TestReapRequeued stays behind a job that Slurm has started again.
func TestReapRequeued(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again), Choice{})
	f.claim(r)
	f.pass(time.Minute)
	f.slurm.Set(r.Current().Info.Name, jobs.Status{State: jobs.StatePending, NativeState: "REQUEUED"})
	f.reap(r, 1, 0)
	all := f.reapers()
	if l := all[len(all)-1]; len(all) != 2 || !isBehind(l, r.Current().Submitted.Handle) {
		t.Fatalf("%+v", all)
	}
}

// TestReapUnconfirmed: what began the next attempt was killed before Slurm had it.
// The reaper of the one before looks again until that is sure.
func TestReapUnconfirmed(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again), Choice{})
	f.claim(r)
	f.exitWith(r, jobs.ClassPreempted)
	d := jobs.Next(f.load(r), nil, f.now()).Decision
	_, err := store.SetDecision(f.load(r).Current().Dir, d)
	must(t, err)
	_, _, err = store.Begin(r.Dir, jobs.AttemptInfo{Version: 1, ID: "killed", Number: 2, Name: "berth-killed", Created: f.now()}, "")
	must(t, err)
	v := f.reap(r, 1, 0)
	all := f.reapers()
	if len(v.Attempts) != 2 || len(all) != 2 || all[1].Attempt != "killed" || all[1].Wait != pause(0) {
		t.Fatalf("%+v, %+v", v, all)
	}
	f.pass(submitting)
	if v := f.reap(r, 2, 1); len(v.Attempts) != 3 || v.Current().Submitted == nil || v.Current().Reaper == nil {
		t.Errorf("%+v", v)
	}
}

// TestReapFull goes on where nothing can be written, and leaves nothing
// elsewhere.
func TestReapFull(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again), Choice{})
	f.claim(r)
	f.slurm.Set(r.Current().Info.Name, jobs.Status{State: jobs.StateError, NativeState: "NODE_FAIL"})
	script := filepath.Join(r.Current().Dir, "reaper.sh")
	must(t, os.Remove(script))
	must(t, os.Mkdir(script, 0o700))
	other := t.TempDir()
	t.Setenv("TMPDIR", other)
	f.reap(r, 1, 0)
	if got := f.reapers(); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if left, err := os.ReadDir(other); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestReapInVain gives up, and says so.
func TestReapInVain(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again), Choice{})
	f.claim(r)
	f.pass(time.Hour)
	f.slurm.Fault(func(s *jobstest.FakeScheduler) { s.Queries = &jobs.Error{Kind: jobs.KindInfra, Msg: "down"} })
	f.reap(r, 1, mostLooks-1)
	if _, err := f.Reap(t.Context(), f.load(r), 1, mostLooks); err == nil || f.load(r).Stuck() == nil {
		t.Errorf("%v", err)
	}
	must(t, store.SetUnfollowed(r.Current().Dir, jobs.Unfollowed{Version: 1, Reason: "x"}))
	f.slurm.Fault(func(s *jobstest.FakeScheduler) { s.Queries = nil })
	f.exit(r, jobs.StateCompleted, 0)
	if v := f.reap(r, 1, 3); v.State != jobs.StateCompleted || v.Stuck() != nil {
		t.Errorf("%s", v.State)
	}
}

// TestReaperForbidden looks now and then where the site takes no dependency.
func TestReaperForbidden(t *testing.T) {
	f := newFixture(t)
	f.submit(at(task(again), jobs.Place{Profile: jobs.Profile{Name: "site", Forbid: []string{"dependency"}}}), Choice{})
	if got := f.reapers(); len(got) != 1 || got[0].Wait != 15*time.Second || len(got[0].Behind) != 0 {
		t.Fatalf("%+v", got)
	}
}
