package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// waits is a job whose first attempt began in job 7 of Slurm, with a standby 8
// behind it.
func waits(t *testing.T) *jobs.Record {
	t.Helper()
	r := requeued(t, jobs.DefaultRetry())
	h := jobs.Handle{NativeID: "8", Name: jobs.StandbyName(r.Current().Info.ID, 1)}
	if _, err := store.SetStandby(r.Current().Dir, jobs.Standby{Version: 1, Handles: []jobs.Handle{h}}); err != nil {
		t.Fatal(err)
	}
	return reread(t, r)
}

// end records the end of the current attempt, and what follows.
func end(t *testing.T, r *jobs.Record, d jobs.Decision) {
	t.Helper()
	a := r.Current()
	d.Version, d.Attempt = 1, a.Info.ID
	_, err := store.SetExit(a.Dir, jobs.ExitRecord{Version: 1, Attempt: a.Info.ID, State: jobs.StateError, Code: 1})
	if err == nil {
		_, err = store.SetDecision(a.Dir, d)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func stand(t *testing.T, r *jobs.Record, id string) *jobs.Attempt {
	t.Helper()
	a, err := standIn(r.Attempts[0].Dir, id, "/nowhere/berth", timesOf(time.Second/10), make(chan os.Signal))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestStandIn: a job that was submitted ahead is the next attempt, once.
func TestStandIn(t *testing.T) {
	t.Parallel()
	r := waits(t)
	end(t, r, jobs.Decision{Verb: jobs.VerbRetry, Class: jobs.ClassPreempted})
	a := stand(t, r, "8")
	if a == nil || a.Info.Number != 2 || a.Submitted == nil || a.Submitted.Handle.NativeID != "8" || a.Info.Name != jobs.StandbyName(r.Current().Info.ID, 1) {
		t.Fatalf("%+v", a)
	}
	if b := stand(t, r, "8"); b == nil || b.Info.ID != a.Info.ID {
		t.Errorf("killed before its claim, and started anew: %+v", b)
	}
}

// TestStandInNeedless: it ends at once, and touches nothing.
func TestStandInNeedless(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]jobs.Decision{
		"accepted": {Verb: jobs.VerbAccept, State: jobs.StateCompleted},
		"misfit":   {Verb: jobs.VerbRetry, Class: jobs.ClassMemory, Change: jobs.Change{Memory: jobs.GiB}},
	} {
		r := waits(t)
		end(t, r, d)
		if a := stand(t, r, "8"); a != nil || len(reread(t, r).Attempts) != 1 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	r := waits(t)
	end(t, r, jobs.Decision{Verb: jobs.VerbRetry, Class: jobs.ClassPreempted})
	if _, err := beginHere(reread(t, r), jobs.Decision{}, "another", &jobs.Handle{NativeID: "77"}); err != nil {
		t.Fatal(err)
	}
	if a := stand(t, r, "8"); a != nil {
		t.Errorf("submitted meanwhile: %+v", a)
	}
	r = waits(t)
	if _, err := store.SetCancel(r.Dir, jobs.Cancel{Version: 1}); err != nil {
		t.Fatal(err)
	}
	if a := stand(t, r, "8"); a != nil {
		t.Errorf("cancelled: %+v", a)
	}
	// As the job script starts it, of an attempt that was cancelled.
	var out bytes.Buffer
	if code := start([]string{"--standby", r.Current().Dir}, nil, &out, defaultTimes()); code != 0 || out.Len() == 0 {
		t.Errorf("%d: %s", code, out.String())
	}
}

// TestStandInRequeued: the attempt before it is the second in the same job, which
// the scheduler had requeued, and its runner was killed.
func TestStandInRequeued(t *testing.T) {
	t.Parallel()
	r := waits(t)
	end(t, r, jobs.Decision{Verb: jobs.VerbRetry, Class: jobs.ClassPreempted})
	h := r.Current().Submitted.Handle
	second, err := beginHere(reread(t, r), jobs.Decision{}, r.Current().Info.Name, &h)
	if err == nil {
		_, err = store.SetClaim(second.Dir, jobs.Claim{Version: 1, Attempt: second.Info.ID, NativeID: h.NativeID, Time: time.Now()})
	}
	if err != nil {
		t.Fatal(err)
	}
	wait := make(chan os.Signal, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = standIn(r.Attempts[0].Dir, "8", "/nowhere/berth", timesOf(time.Second/10), wait)
	}()
	eventually(t, "what follows is decided", func() bool { return reread(t, r).Current().Decision != nil })
	wait <- syscall.SIGTERM
	<-done
	if got := reread(t, r).Current(); got.N != 2 || got.Verdict == nil || got.Decision.Verb != jobs.VerbRetry {
		t.Errorf("%+v", got)
	}
}

// TestStandInKilled: the runner before it was killed, and Slurm's programs are
// not on the node: silence tells.
func TestStandInKilled(t *testing.T) {
	t.Parallel()
	r := waits(t)
	tree := filepath.Join(r.Current().Dir, workspace.WorkDir, ".git")
	if err := os.MkdirAll(tree, 0o700); err != nil {
		t.Fatal(err)
	}
	wait := make(chan os.Signal, 1)
	done := make(chan *jobs.Attempt)
	go func() {
		a, _ := standIn(r.Attempts[0].Dir, "8", "/nowhere/berth", timesOf(time.Second/10), wait)
		done <- a
	}()
	for deadline := time.Now().Add(time.Minute); reread(t, r).Current().Decision == nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is decided")
		}
	}
	// It waits now, as the site has failed; and leaves when it must.
	wait <- syscall.SIGTERM
	if a := <-done; a != nil {
		t.Errorf("%+v", a)
	}
	got := reread(t, r).Current()
	if got.Verdict == nil || got.Verdict.State != jobs.StateLost || got.Decision.Verb != jobs.VerbRetry || got.Decision.Class != jobs.ClassInfra {
		t.Errorf("%+v", got)
	}
	if _, err := os.Lstat(tree); !os.IsNotExist(err) {
		t.Errorf("the task's .git is in the tree it left: %v", err)
	}
}
