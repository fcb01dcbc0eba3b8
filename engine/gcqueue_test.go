package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sweeps "berth/internal/sweep"
	"berth/jobs"
)

// A job that Slurm holds ("launch failed requeued held") for an attempt that has
// ended is cancelled: by its name and directory, a while after the end, and only
// when it waits.
func TestSweepSpent(t *testing.T) {
	f := newFixture(t)
	s := &listing{scheduler: f.slurm}
	f.Schedulers[0] = s
	held := f.submit(task(), Choice{})
	open := f.submit(task(), Choice{})
	for _, r := range []*jobs.Record{held, open} {
		a := f.load(r).Current()
		for _, name := range []string{a.Info.Name, "berth-fix-0123456789ab"} {
			s.jobs = append(s.jobs, jobs.Listed{Handle: jobs.Handle{NativeID: a.Submitted.Handle.NativeID, Name: name}, Dir: a.Dir})
		}
	}
	f.claim(held)
	f.exit(held, jobs.StateCompleted, 0)
	name, native := held.Current().Info.Name, f.load(held).Current().Submitted.Handle.NativeID
	wait := jobs.Status{State: jobs.StatePending, NativeState: "PENDING", Reason: "launch failed requeued held", Explanation: "waits: it is held"}
	f.slurm.Set(name, wait)
	if found := f.sweep(false, true); len(found) != 0 { // its runner may be about to end
		t.Fatalf("%+v", found)
	}
	f.pass(time.Hour)
	f.slurm.Set(name, jobs.Status{State: jobs.StateRunning, NativeState: "RUNNING"})
	if found := f.sweep(false, true); len(found) != 0 {
		t.Fatalf("%+v", found)
	}
	f.slurm.Set(name, wait)
	if l := only(t, f.sweep(true, false), LeftSlurmJob, DoneFound); l.Name != native || l.Job != held.Spec.ID || !strings.Contains(l.Why, name) || !strings.Contains(l.Why, "it is held") || s.ended != nil {
		t.Errorf("%+v; ended: %q", l, s.ended)
	}
	only(t, f.sweep(false, false), LeftSlurmJob, DoneRemoved)
	if !slices.Equal(s.ended, []string{native}) {
		t.Errorf("ended: %q", s.ended)
	}
}

// Workers of a sweep whose directory is gone are found as jobs are, and ended when
// that is asked for; those of a sweep that is there, and those of another state
// directory, are not.
func TestSweepQueueWorkers(t *testing.T) {
	f := newFixture(t)
	s := &listing{scheduler: f.slurm}
	f.Schedulers[0] = s
	home := f.Store.Home()
	here := filepath.Join(home, "sweeps", "ab", "01890000-0000-7000-8000-0123456789ab")
	must(t, os.MkdirAll(here, 0o700))
	must(t, os.WriteFile(sweeps.SpecFile(here), []byte("{}"), 0o600))
	for i, dir := range []string{
		filepath.Join(here, "jobs", "1"),
		filepath.Join(home, "sweeps", "cd", "01890000-0000-7000-8000-0123456789cd", "jobs", "1"),
		filepath.Join(home+"-other", "sweeps", "ef", "01890000-0000-7000-8000-0123456789ef", "jobs", "1"),
		filepath.Join(home, "sweeps"),
	} {
		s.jobs = append(s.jobs, jobs.Listed{Handle: jobs.Handle{NativeID: strconv.Itoa(70 + i), Name: "berth-sweep-0123-1"}, Dir: dir})
	}
	if l := only(t, f.sweep(false, false), LeftSlurmJob, DoneNeeds); l.Name != "71" || len(s.ended) != 0 {
		t.Errorf("%+v; ended: %q", l, s.ended)
	}
	only(t, f.sweep(false, true), LeftSlurmJob, DoneRemoved)
	if !slices.Equal(s.ended, []string{"71"}) {
		t.Errorf("ended: %q", s.ended)
	}
}

// A job that Slurm has put back is the next attempt, as long as no other job is.
func TestSweepSpentAttempt(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again), Choice{})
	first := f.load(r).Current().Submitted.Handle
	f.claim(r)
	f.exitWith(r, jobs.ClassNode)
	at := f.load(r)
	at.Attempts[0].Decision = &jobs.Decision{Verb: jobs.VerbRetry}
	if why := f.spent(at, first); why != "" {
		t.Errorf("it may go on in this job: %s", why)
	}
	f.see(r)
	at = f.load(r)
	if len(at.Attempts) != 2 {
		t.Fatalf("%+v", at)
	}
	if why := f.spent(at, first); !strings.Contains(why, "attempt 2 goes on") {
		t.Errorf("the job of the first attempt: %q", why)
	}
	if why := f.spent(at, at.Current().Submitted.Handle); why != "" {
		t.Errorf("the job of the second attempt: %s", why)
	}
	// One that Slurm started again has its name and number.
	at.Attempts[1].Info.Name, at.Attempts[1].Submitted = at.Attempts[0].Info.Name, at.Attempts[0].Submitted
	if why := f.spent(at, first); why != "" {
		t.Errorf("the job of both: %s", why)
	}
}

// The marks of containers that may be ended are those of attempts that ended a
// while ago, all that have the same.
func TestEndedMarks(t *testing.T) {
	f := newFixture(t)
	open, over := f.submit(task(), Choice{}), f.submit(task(), Choice{})
	f.claim(open)
	f.claim(over)
	f.exit(over, jobs.StateFailed, 1)
	marks := func() map[string]Left {
		t.Helper()
		m, err := f.EndedMarks()
		must(t, err)
		return m
	}
	if m := marks(); len(m) != 0 {
		t.Errorf("just ended: %+v", m)
	}
	f.pass(time.Hour)
	name := over.Current().Info.Name
	mark := name[strings.LastIndexByte(name, '-')+1:]
	if m := marks(); len(m) != 1 || m[mark].Job != over.Spec.ID || m[mark].What != LeftProcess || len(mark) != 12 {
		t.Errorf("%q: %+v", mark, m)
	}
}
