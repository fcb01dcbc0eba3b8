package runner

import (
	"reflect"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// TestDecisionHasEnd: whoever finds the runner killed after it has accepted its
// result knows from the decision what the runner was about to record.
func TestDecisionHasEnd(t *testing.T) {
	t.Parallel()
	for command, state := range map[string]jobs.State{"true": jobs.StateCompleted, "exit 3": jobs.StateFailed} {
		j := newJob(t, command, func(n *store.New) { n.Spec.Retry = jobs.DefaultRetry() })
		_, rec := j.run()
		d := reread(t, j.rec).Current().Decision
		if rec.State != state || d == nil || d.Verb != jobs.VerbAccept || d.Exit == nil || d.State != state {
			t.Fatalf("%s: %+v", command, d)
		}
		left := *d.Exit
		if left.Ended.IsZero() || left.Ended.After(rec.Ended) {
			t.Errorf("it ended at %v, or %v", left.Ended, rec.Ended)
		}
		left.Ended, left.Notes, rec.Notes = rec.Ended, nil, nil
		if !reflect.DeepEqual(left, rec) {
			t.Errorf("%+v\n%+v", left, rec)
		}
	}
}

// accepted is a job like [waits], whose runner has accepted its result and is
// silent.
func accepted(t *testing.T) *jobs.Record {
	t.Helper()
	r := waits(t)
	a := r.Current()
	exit := &jobs.ExitRecord{Version: 1, Attempt: a.Info.ID, State: jobs.StateCompleted, Ended: time.Now()}
	if _, err := store.SetDecision(a.Dir, jobs.Decision{Version: 1, Attempt: a.Info.ID, Verb: jobs.VerbAccept, State: jobs.StateCompleted, Exit: exit}); err != nil {
		t.Fatal(err)
	}
	return reread(t, r)
}

// TestStandInAccepted: what was submitted ahead finishes what the killed runner
// before it had accepted, and begins nothing.
func TestStandInAccepted(t *testing.T) {
	t.Parallel()
	r := accepted(t)
	if a := stand(t, r, "8"); a != nil {
		t.Errorf("%+v", a)
	}
	r = reread(t, r)
	if a := r.Current(); len(r.Attempts) != 1 || a.Exit == nil || a.Verdict != nil || len(a.Exit.Notes) != 1 || jobs.StateOf(r) != jobs.StateCompleted {
		t.Errorf("%s: %+v", jobs.StateOf(r), a)
	}
}

// TestRestartedAccepted: Slurm has started the job again, and its runner may live
// on. Nothing is begun or said.
func TestRestartedAccepted(t *testing.T) {
	t.Parallel()
	r := accepted(t)
	if _, err := restarted(r, r.Current(), jobs.NodeJob{ID: "7", Restart: 1}); jobs.KindOf(err) != jobs.KindAgain {
		t.Errorf("%v", err)
	}
	r = reread(t, r)
	if a := r.Current(); len(r.Attempts) != 1 || a.Exit != nil || a.Verdict != nil || jobs.StateOf(r) != jobs.StateRunning {
		t.Errorf("%s: %+v", jobs.StateOf(r), a)
	}
}
