package engine

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// listing is a scheduler that lists its jobs.
type listing struct {
	*scheduler
	jobs  []jobs.Listed
	ended []string
}

func (s *listing) List(context.Context) ([]jobs.Listed, error) { return s.jobs, nil }

func (s *listing) Cancel(_ context.Context, handles []jobs.Handle) error {
	for _, h := range handles {
		s.ended = append(s.ended, h.NativeID)
	}
	return nil
}

func (f *fixture) sweep(dry, force bool) []Left {
	f.t.Helper()
	found, err := f.Sweep(f.t.Context(), dry, force)
	must(f.t, err)
	return found
}

func only(t *testing.T, found []Left, what, result string) Left {
	t.Helper()
	if len(found) != 1 || found[0].What != what || found[0].Result != result || found[0].Why == "" {
		t.Fatalf("%+v, want one %s: %s", found, what, result)
	}
	return found[0]
}

// An attempt whose node died is concluded, once that is certain.
func TestSweepAttempts(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	f.claim(r)
	if found := f.sweep(false, false); len(found) != 0 {
		t.Fatalf("%+v", found)
	}
	f.slurm.Forget(r.Current().Info.Name)
	f.pass(time.Minute)
	only(t, f.sweep(true, false), LeftAttempt, DoneFound)
	only(t, f.sweep(false, false), LeftAttempt, DoneWaits)
	f.pass(time.Hour)
	if l := only(t, f.sweep(false, false), LeftAttempt, DoneRemoved); l.Job != r.Spec.ID {
		t.Errorf("%+v", l)
	}
	if found := f.sweep(false, false); len(found) != 0 {
		t.Fatalf("%+v", found)
	}
}

// A job in the queue counts as an orphan by its directory alone: in this ledger,
// and without a record. It is ended only with force.
func TestSweepQueue(t *testing.T) {
	f := newFixture(t)
	s := &listing{scheduler: f.slurm}
	f.Schedulers[0] = s
	r := f.submit(task(), Choice{})
	gone := store.AttemptDir(f.Store.JobDir("01890000-0000-7000-8000-0123456789ab"), 1)
	for id, dir := range map[string]string{"1": r.Current().Dir, "2": gone, "3": "/elsewhere/jobs/ab/x", "4": f.Store.Home() + "-2/jobs/x"} {
		s.jobs = append(s.jobs, jobs.Listed{Handle: jobs.Handle{NativeID: id, Name: "berth-x-" + id}, Dir: dir})
	}
	if l := only(t, f.sweep(true, true), LeftSlurmJob, DoneFound); l.Name != "2" {
		t.Errorf("%+v", l)
	}
	only(t, f.sweep(false, false), LeftSlurmJob, DoneNeeds)
	if s.ended != nil {
		t.Error(s.ended)
	}
	only(t, f.sweep(false, true), LeftSlurmJob, DoneRemoved)
	if !slices.Equal(s.ended, []string{"2"}) {
		t.Error(s.ended)
	}
}

// A runner of this machine whose attempt ended long ago is told by its number and
// its start, and ended with force.
func TestSweepProcesses(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	p := exec.Command("sleep", "300")
	must(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	me := lease.Self()
	a := r.Current()
	c := jobs.Claim{Version: 1, Attempt: a.Info.ID, Host: me.Host, BootID: me.BootID, PID: p.Process.Pid, Start: "1", Time: f.now()}
	_, err := store.SetClaim(a.Dir, c)
	must(t, err)
	_, err = store.SetExit(a.Dir, jobs.ExitRecord{Version: 1, Attempt: a.Info.ID, State: jobs.StateCompleted, Ended: f.now()})
	must(t, err)
	f.pass(time.Hour)
	if found := f.sweep(false, true); len(found) != 0 { // a later process of that number
		t.Fatalf("%+v", found)
	}
	c.Start = lease.StartTime(p.Process.Pid)
	must(t, os.Remove(filepath.Join(a.Dir, "claim.json")))
	_, err = store.SetClaim(a.Dir, c)
	must(t, err)
	only(t, f.sweep(true, true), LeftProcess, DoneFound)
	only(t, f.sweep(false, false), LeftProcess, DoneNeeds)
	only(t, f.sweep(false, true), LeftProcess, DoneRemoved)
	if err := p.Wait(); err == nil {
		t.Error("it ended by itself")
	}
}

// Parts of the ledger that were being made or removed when their process was
// killed go after a day.
func TestSweepRemains(t *testing.T) {
	f := newFixture(t)
	dir := filepath.Join(f.Store.Home(), "jobs", "ab", ".new-01890000-0000-7000-8000-0123456789ab")
	must(t, os.MkdirAll(dir, 0o700))
	if found := f.sweep(false, false); len(found) != 0 {
		t.Fatalf("%+v", found)
	}
	old := time.Now().Add(-48 * time.Hour)
	must(t, os.Chtimes(dir, old, old))
	if l := only(t, f.sweep(false, false), LeftRemains, DoneRemoved); l.Name != dir {
		t.Errorf("%+v", l)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it is there")
	}
}
