package runner

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// requeued is a job whose first attempt began in job 7 of Slurm.
func requeued(t *testing.T, p *jobs.Retry) *jobs.Record {
	t.Helper()
	j := newJob(t, "true", func(n *store.New) {
		n.Spec.Retry, n.Secrets, n.Spec.EnvNames = p, []string{"TOKEN=x"}, []string{"TOKEN"}
	})
	a := j.rec.Current()
	if _, err := store.SetSubmitted(a.Dir, jobs.Submitted{Version: 1, Handle: jobs.Handle{Name: a.Info.Name, NativeID: "7"}}); err != nil {
		t.Fatal(err)
	}
	claimFor(t, a, 0)
	return reread(t, j.rec)
}

func claimFor(t *testing.T, a *jobs.Attempt, restart int) {
	t.Helper()
	if _, err := store.SetClaim(a.Dir, jobs.Claim{Version: 1, Attempt: a.Info.ID, NativeID: "7", Restart: restart, Host: "n1", Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
}

func reread(t *testing.T, r *jobs.Record) *jobs.Record {
	t.Helper()
	got, err := store.LoadDir(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func hasSecrets(r *jobs.Record) bool {
	_, err := os.Stat(filepath.Join(store.AttemptDir(r.Dir, 1), "env"))
	return err == nil
}

// TestRestarted: a job that Slurm has started again is the next attempt of it.
func TestRestarted(t *testing.T) {
	t.Parallel()
	r := requeued(t, jobs.DefaultRetry())
	for count := 1; count <= 2; count++ {
		a, err := restarted(r, &r.Attempts[0], jobs.NodeJob{ID: "7", Restart: count})
		if err != nil || a.Info.Number != count+1 || a.Submitted == nil || a.Submitted.Handle.NativeID != "7" {
			t.Fatalf("restart %d: %+v, %v", count, a, err)
		}
		claimFor(t, a, count)
		r = reread(t, r)
		if d := r.Attempts[count-1].Decision; d == nil || d.Verb != jobs.VerbRetry || d.Class != jobs.ClassPreempted {
			t.Errorf("%+v", d)
		}
	}
	if _, err := restarted(r, &r.Attempts[0], jobs.NodeJob{ID: "7", Restart: 2}); jobs.KindOf(err) != jobs.KindAgain {
		t.Errorf("the same restart twice: %v", err)
	}
	if _, err := restarted(r, &r.Attempts[0], jobs.NodeJob{ID: "8", Restart: 9}); jobs.KindOf(err) != jobs.KindAgain {
		t.Errorf("another Slurm job: %v", err)
	}
	if !hasSecrets(r) {
		t.Error("the secrets of the next attempt are gone")
	}
}

// TestRestartedAgain: a restart that was killed before its runner had claimed
// the attempt that it had begun is made up by the next one.
func TestRestartedAgain(t *testing.T) {
	t.Parallel()
	r := requeued(t, jobs.DefaultRetry())
	first, err := restarted(r, &r.Attempts[0], jobs.NodeJob{ID: "7", Restart: 1})
	if err != nil {
		t.Fatal(err)
	}
	r = reread(t, r)
	if a, err := restarted(r, &r.Attempts[0], jobs.NodeJob{ID: "7", Restart: 2}); err != nil || a.Info.ID != first.Info.ID {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := restarted(r, &r.Attempts[0], jobs.NodeJob{ID: "8", Restart: 2}); jobs.KindOf(err) != jobs.KindAgain {
		t.Errorf("another Slurm job: %v", err)
	}
}

// TestRestartedTooOften ends the job, and so its secrets.
func TestRestartedTooOften(t *testing.T) {
	t.Parallel()
	r := requeued(t, &jobs.Retry{Attempts: 3, CoreHours: 1e-9})
	if err := store.Beat(r.Current().Dir, 1, time.Now()); err != nil {
		t.Fatal(err)
	}
	late := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(r.Current().Dir, "beat"), late, late); err != nil {
		t.Fatal(err)
	}
	r = reread(t, r)
	if _, err := restarted(r, &r.Attempts[0], jobs.NodeJob{ID: "7", Restart: 1}); jobs.KindOf(err) != jobs.KindAgain {
		t.Errorf("%v", err)
	}
	r = reread(t, r)
	if d := r.Current().Decision; len(r.Attempts) != 1 || d == nil || d.Verb != jobs.VerbAccept {
		t.Fatalf("%+v", r.Attempts)
	}
	if hasSecrets(r) {
		t.Error("the secrets stay for ever")
	}
}

// TestRestartedAsItWas: what the next attempt lacked is not in a job that Slurm
// has started again, so that this is not it.
func TestRestartedAsItWas(t *testing.T) {
	t.Parallel()
	r := requeued(t, jobs.DefaultRetry())
	a := r.Current()
	_, err := store.SetExit(a.Dir, jobs.ExitRecord{Version: 1, Attempt: a.Info.ID, State: jobs.StateOutOfMemory, Code: 1})
	if err == nil {
		_, err = store.SetDecision(a.Dir, jobs.Decision{Version: 1, Attempt: a.Info.ID, Verb: jobs.VerbRetry, Class: jobs.ClassMemory, Change: jobs.Change{Memory: jobs.GiB}})
	}
	if err != nil {
		t.Fatal(err)
	}
	r = reread(t, r)
	if _, err := restarted(r, &r.Attempts[0], jobs.NodeJob{ID: "7", Restart: 1}); jobs.KindOf(err) != jobs.KindAgain || len(reread(t, r).Attempts) != 1 {
		t.Errorf("%v", err)
	}
}
