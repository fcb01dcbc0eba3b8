package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
)

// workers are the jobs of a sweep of the test's.
func workers(t *testing.T, scheduler string, n, atOnce int) SweepJobs {
	t.Helper()
	return SweepJobs{Dir: t.TempDir(), ID: "01890000-0000-7000-8000-0123456789ab", Name: "lr", Workers: n, AtOnce: atOnce,
		Place: jobs.Place{Backend: jobs.BackendBare, Level: jobs.LevelNone, Scheduler: scheduler, Resources: jobs.Resources{CPUs: 2}}}
}

// elements are how many each launch had.
func elements(f *jobstest.FakeScheduler) (n []int) {
	for _, l := range f.Launches() {
		n = append(n, l.Elements)
	}
	return n
}

// More workers than one array may have are several; with a bound for all of them these
// begin one after the other.
func TestSweepArrays(t *testing.T) {
	f := newFixture(t)
	f.slurm.Left = jobs.Room{Elements: 10}
	j := workers(t, jobs.SchedulerSlurm, 25, 4)
	taken, why, err := f.SubmitSweep(t.Context(), j)
	if err != nil || taken != 25 || why != "" || !slices.Equal(elements(f.slurm.FakeScheduler), []int{10, 10, 5}) {
		t.Fatalf("%d %q %v %v", taken, why, err, elements(f.slurm.FakeScheduler))
	}
	for i, l := range f.slurm.Launches() {
		if l.AtOnce != 4 || len(l.Behind) != min(i, 1) || !l.Requeue || l.Argv[1] != "sweep-worker" || l.Name != "berth-sweep-456789ab-"+string(rune('1'+i)) {
			t.Errorf("%d: %+v", i, l)
		}
	}
	f.slurm.Start("berth-sweep-456789ab-1")
	if left, waiting, err := f.SweepWorkers(t.Context(), j.Dir); err != nil || left != 3 || waiting != 2 {
		t.Errorf("%d left, %d wait, %v", left, waiting, err)
	}
	must(t, f.CancelSweep(t.Context(), j.Dir))
	if left, _, err := f.SweepWorkers(t.Context(), j.Dir); err != nil || left != 0 {
		t.Errorf("%d left, %v", left, err)
	}
}

func TestSweepLimits(t *testing.T) {
	f := newFixture(t)
	// No more than the user may have, by what is told of it.
	f.slurm.Left = jobs.Room{Jobs: 3, Why: "MaxSubmitJobs is 5"}
	if taken, why, err := f.SubmitSweep(t.Context(), workers(t, jobs.SchedulerSlurm, 25, 0)); err != nil || taken != 3 || why != "MaxSubmitJobs is 5" {
		t.Errorf("%d %q %v", taken, why, err)
	}
	f.slurm.Left.Jobs = 0
	j := workers(t, jobs.SchedulerSlurm, 25, 0)
	if _, _, err := f.SubmitSweep(t.Context(), j); jobs.KindOf(err) != jobs.KindAgain {
		t.Error(err)
	}
	// And by what is not: half of it, once.
	f.slurm.Left = jobs.Room{}
	tries := []int{}
	f.slurm.Submits = func(l jobs.Launch) error {
		if tries = append(tries, l.Elements); l.Elements > 8 {
			return &jobs.Error{Kind: jobs.KindAgain, Msg: "QOSMaxSubmitJobPerUserLimit"}
		}
		return nil
	}
	if taken, why, err := f.SubmitSweep(t.Context(), workers(t, jobs.SchedulerSlurm, 16, 0)); err != nil || taken != 8 || !strings.Contains(why, "QOSMax") {
		t.Errorf("%d %q %v", taken, why, err)
	}
	if _, _, err := f.SubmitSweep(t.Context(), j); jobs.KindOf(err) != jobs.KindAgain || !slices.Equal(tries, []int{16, 8, 25, 12}) {
		t.Errorf("%v %v", err, tries)
	}
	if left, err := filepath.Glob(filepath.Join(j.Dir, "jobs", "*")); err != nil || len(left) > 0 {
		t.Errorf("what was refused has left %v, %v", left, err)
	}
}

// An answer that was lost is looked for by the name; where that is not clear either, the
// submission is known all the same, and can be cancelled.
func TestSweepLostReply(t *testing.T) {
	f := newFixture(t)
	f.slurm.LoseReplies = 1
	j := workers(t, jobs.SchedulerSlurm, 4, 0)
	if taken, _, err := f.SubmitSweep(t.Context(), j); err != nil || taken != 4 || f.slurm.Calls().Submit != 1 {
		t.Errorf("%d %v", taken, err)
	}
	f.slurm.LoseReplies, f.slurm.findFails = 1, -1
	if _, _, err := f.SubmitSweep(t.Context(), j); jobs.KindOf(err) != jobs.KindUnclear {
		t.Error(err)
	}
	f.slurm.findFails = 0
	if left, waiting, err := f.SweepWorkers(t.Context(), j.Dir); err != nil || left != 2 || waiting != 2 || f.slurm.Calls().Submit != 2 {
		t.Errorf("%d %d %v", left, waiting, err)
	}
	must(t, f.CancelSweep(t.Context(), j.Dir))
	if left, _, err := f.SweepWorkers(t.Context(), j.Dir); err != nil || left != 0 {
		t.Errorf("%d left, %v", left, err)
	}
}

// In the queue of this machine there is one worker, of no array.
func TestSweepHere(t *testing.T) {
	f := newFixture(t)
	j := workers(t, jobs.SchedulerLocal, 1, 0)
	if taken, _, err := f.SubmitSweep(t.Context(), j); err != nil || taken != 1 {
		t.Errorf("%d %v", taken, err)
	}
	if l := f.queue.Launches(); len(l) != 1 || l[0].Elements != 0 || l[0].Requeue || l[0].Resources.CPUs != 2 {
		t.Errorf("%+v", l)
	}
	must(t, f.CancelSweep(t.Context(), j.Dir)) // its own record ends it
	if left, _, err := f.SweepWorkers(t.Context(), j.Dir); err != nil || left != 1 {
		t.Errorf("%d left, %v", left, err)
	}
}

// keyed is a backend that is a program, with a key of its service.
type keyed struct{ Program }

func (keyed) Keys() []string { return []string{"MODAL_TOKEN=s3cr3t"} }

// The worker of tasks in sandboxes gets the keys of the service in a file of its own, and takes
// one CPU of this machine, whatever its sandboxes have.
func TestSweepService(t *testing.T) {
	f := newFixture(t)
	j := workers(t, jobs.SchedulerLocal, 1, 0)
	j.Place.Backend, j.Place.External, j.Place.Resources.CPUs = "modal", &jobs.ExternalSpec{}, 64
	if _, _, err := f.SubmitSweep(t.Context(), j); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("without the program: %v", err)
	}
	f.Program = func(string) Program { return keyed{} }
	if taken, _, err := f.SubmitSweep(t.Context(), j); err != nil || taken != 1 {
		t.Fatalf("%d %v", taken, err)
	}
	l := f.queue.Launches()
	if len(l) != 1 || l[0].Resources != (jobs.Resources{CPUs: 1}) || !slices.Contains(l[0].Argv, "--keys") {
		t.Fatalf("%+v", l)
	}
	path := l[0].Argv[len(l[0].Argv)-1]
	fi, err := os.Stat(path)
	must(t, err)
	script, err := os.ReadFile(filepath.Join(filepath.Dir(path), sweepScript))
	must(t, err)
	if fi.Mode() != 0o600 || strings.Contains(string(script), "s3cr3t") {
		t.Errorf("%v, %s", fi.Mode(), script)
	}
	got, err := store.TakeValues(path)
	if err != nil || !slices.Equal(got, []string{"MODAL_TOKEN=s3cr3t"}) {
		t.Errorf("%q %v", got, err)
	}
	if got, err := store.TakeValues(path); err != nil || got != nil {
		t.Errorf("taken twice: %q %v", got, err)
	}
	// A worker that never began leaves them to a cancel.
	_, _, err = f.SubmitSweep(t.Context(), j)
	must(t, err)
	must(t, f.CancelSweep(t.Context(), j.Dir))
	if left, err := filepath.Glob(filepath.Join(j.Dir, "jobs", "*", sweepKeys)); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}
