package engine

import (
	"slices"
	"testing"

	"berth/jobs"
	"berth/jobs/store"
)

// TestRetryOfReview: another try of a job that checks a result checks it, too: over the
// network of a verifier, and what only looks at its tree may not write to it.
func TestRetryOfReview(t *testing.T) {
	f, r, repo, _ := reviewing(t)
	r.Spec.Done = []jobs.Command{{Shell: "make test"}}
	r.Spec.Network.Phases.Verify = jobs.NetworkPhase{Mode: jobs.NetworkAllow, Allow: []string{"verify.example"}}
	s, err := f.checking(&r.Spec, map[string]string{"": r.Current().Result().Commit})
	must(t, err)
	s.Workspace.ReadOnly = true // as of an agent that reviews
	child, err := f.Submit(t.Context(), s, jobs.Task{})
	must(t, err)
	_, err = store.SetExit(child.Current().Dir, jobs.ExitRecord{Version: 1, State: jobs.StateFailed, Exit: jobs.Exit{Started: true, Code: 1}, Ended: f.now()})
	must(t, err)
	again, task, err := f.PlanRetry(t.Context(), f.see(child).Record, RetryOptions{})
	must(t, err)
	rec, err := f.Submit(t.Context(), again, task)
	must(t, err)
	rec, err = f.Store.Load(rec.Spec.ID)
	must(t, err)
	n := rec.Spec.Network.Phase(rec.Spec.DonePhase())
	if len(rec.Spec.Notes) != 1 || !rec.Spec.Verifies || rec.Spec.RetryOf != child.Spec.ID || len(rec.Spec.Done) != 1 || !slices.Equal(n.Allow, []string{"verify.example"}) || n.Mode != jobs.NetworkAllow {
		t.Errorf("%+v, network %+v", rec.Spec, n)
	}
	if w := rec.Spec.Workspace; !w.ReadOnly || w.Repo != repo || w.Base != child.Spec.Workspace.Base {
		t.Errorf("%+v", w)
	}
}
