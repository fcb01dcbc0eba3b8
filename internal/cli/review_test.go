package cli

import (
	"testing"

	"berth/engine"
	"berth/jobs"
)

// TestReviewOfFurther: where the first workspace has not changed, all fields of a workspace are of
// the first one that has.
func TestReviewOfFurther(t *testing.T) {
	spec := jobs.Spec{ID: "20261127-093000-0a1b2c3d",
		Workspace: &jobs.WorkspaceSpec{Branch: "berth/app", Base: "a1"},
		Further:   []jobs.WorkspaceSpec{{Name: "lib", Branch: "berth/lib", Base: "b1"}}}
	result := &jobs.Result{Base: "a1", Further: []jobs.Result{{Workspace: "lib", Base: "b1", Commit: "b2"}}}
	var exit jobs.ExitRecord
	exit.Result = result
	r := &jobs.Record{Spec: spec, Attempts: []jobs.Attempt{{N: 1, Exit: &exit}}}
	j := recordJSON(r, engine.ReviewWaiting)
	if j.Workspace != "lib" || j.Branch != "berth/lib" || j.Base != "b1" || j.Commit != "b2" {
		t.Errorf("lib alone: %q %q %q %q", j.Workspace, j.Branch, j.Base, j.Commit)
	}
	result.Commit = "a2"
	j = recordJSON(r, engine.ReviewWaiting)
	if j.Workspace != "" || j.Branch != "berth/app" || j.Base != "a1" || j.Commit != "a2" {
		t.Errorf("both: %q %q %q %q", j.Workspace, j.Branch, j.Base, j.Commit)
	}
}
