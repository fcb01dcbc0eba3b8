package engine

import (
	"path/filepath"
	"slices"
	"strings"
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

// What jobs of a task may have as images has to be there for another try of it, as its own has.
func TestRetryImages(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone.sif")
	for _, c := range []struct {
		image string
		sub   []jobs.ChildImage
		want  string
	}{
		{"alpine:3", []jobs.ChildImage{{Image: "alpine:3"}, {Image: t.TempDir()}}, ""},
		{gone, nil, "the image of job 0a is gone: " + gone},
		{"alpine:3", []jobs.ChildImage{{Image: "alpine:3"}, {Image: gone}}, "an image of [submit] of job 0a is gone: " + gone},
	} {
		s := &jobs.Spec{Place: jobs.Place{Image: c.image}, Submit: &jobs.Submit{Images: c.sub}}
		err := imagesThere(s, "0a")
		if c.want == "" && err != nil || c.want != "" && (jobs.KindOf(err) != jobs.KindNotFound || !strings.HasSuffix(err.Error(), c.want)) {
			t.Errorf("%q: %v", c.want, err)
		}
	}
}

// TestSessionAgain: another try goes on with its agent's session where the files of that are
// still there, and else says why not.
func TestSessionAgain(t *testing.T) {
	resume := jobs.Command{Argv: []string{"a", "--resume", jobs.SessionWord}}
	used := &jobs.AgentUse{Session: "s-1"}
	for _, c := range []struct {
		name, backend, overlay string
		resume                 jobs.Command
		exit                   *jobs.ExitRecord
		fresh                  bool
		session, note          string
	}{
		{"promoted", jobs.BackendSingularity, "deps", resume, &jobs.ExitRecord{Agent: used, Overlay: &jobs.OverlayUse{Way: jobs.WaySnapshot, Promoted: true}}, false, "s-1", "goes on with its session s-1"},
		{"in place", jobs.BackendSingularity, "deps", resume, &jobs.ExitRecord{Agent: used, Overlay: &jobs.OverlayUse{Way: jobs.WayInPlace}}, false, "s-1", "goes on with its session s-1"},
		{"not promoted", jobs.BackendSingularity, "deps", resume, &jobs.ExitRecord{Agent: used, Overlay: &jobs.OverlayUse{Way: jobs.WaySnapshot}}, false, "", "is as it was before that job"},
		{"thrown away", jobs.BackendSingularity, "", resume, &jobs.ExitRecord{Agent: used}, false, "", "a named overlay keeps them"},
		{"no layer", jobs.BackendBwrap, "", resume, &jobs.ExitRecord{Agent: used}, false, "", "keeps nothing outside of the workspace"},
		{"another host", jobs.BackendSSH, "", resume, &jobs.ExitRecord{Agent: used}, false, "", "keeps nothing outside of the workspace"},
		{"local", jobs.BackendLocal, "", resume, &jobs.ExitRecord{Agent: used}, false, "s-1", "goes on with its session s-1"},
		{"no option", jobs.BackendLocal, "", jobs.Command{}, &jobs.ExitRecord{Agent: used}, false, "", "has no option for one"},
		{"on purpose", jobs.BackendLocal, "", resume, &jobs.ExitRecord{Agent: used}, true, "", ""},
		{"an option as its id", jobs.BackendLocal, "", resume, &jobs.ExitRecord{Agent: &jobs.AgentUse{Session: "--yolo"}}, false, "", ""},
		{"killed", jobs.BackendLocal, "", resume, nil, false, "", ""},
	} {
		s := jobs.Spec{ID: "0a1b2c3d4e5f6789", Agent: &jobs.Agent{Name: "a", Resume: c.resume, Session: "s-0"}}
		s.Backend, s.Overlay.Name = c.backend, c.overlay
		var notes []string
		a := sessionAgain(&jobs.Record{Spec: s, Attempts: []jobs.Attempt{{Exit: c.exit}}}, c.fresh, &notes)
		if a.Session != c.session || s.Agent.Session != "s-0" || (c.note == "") != (len(notes) == 0) || !strings.Contains(strings.Join(notes, ""), c.note) {
			t.Errorf("%s: %q, %q", c.name, a.Session, notes)
		}
	}
}
