package conclude

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// TestAttempt: the runner's own end is recorded, once, and no more than what
// counts or can still be made to count.
func TestAttempt(t *testing.T) {
	result := &jobs.Result{Branch: "berth/x", Commit: "c"}
	copied := &jobs.OverlayUse{Name: "deps", Way: jobs.WaySnapshot}
	for name, c := range map[string]struct {
		exit     jobs.ExitRecord
		bundle   bool
		promoted bool
		want     jobs.State
		says     string
	}{
		"no workspace":     {exit: jobs.ExitRecord{State: jobs.StateCompleted}, want: jobs.StateCompleted},
		"no changes":       {exit: jobs.ExitRecord{State: jobs.StateCompleted, Code: 4, Result: &jobs.Result{}}, want: jobs.StateCompleted},
		"a branch":         {exit: jobs.ExitRecord{State: jobs.StateCompleted, Result: result}, bundle: true, want: jobs.StateCompleted},
		"no bundle":        {exit: jobs.ExitRecord{State: jobs.StateCompleted, Result: result}, want: jobs.StateError, says: "the bundle with its result is gone"},
		"failed":           {exit: jobs.ExitRecord{State: jobs.StateFailed, Code: 1, Result: result}, bundle: true, want: jobs.StateFailed},
		"failed no bundle": {exit: jobs.ExitRecord{State: jobs.StateFailed, Code: 1, Result: result}, want: jobs.StateFailed, says: "the bundle with its result is gone"},
		"in place":         {exit: jobs.ExitRecord{State: jobs.StateCompleted, Overlay: &jobs.OverlayUse{Name: "deps", Way: jobs.WayInPlace}}, want: jobs.StateCompleted},
		"a copy":           {exit: jobs.ExitRecord{State: jobs.StateCompleted, Overlay: copied}, want: jobs.StateError, says: "overlay deps"},
		"a copy kept":      {exit: jobs.ExitRecord{State: jobs.StateCompleted, Overlay: copied}, promoted: true, want: jobs.StateCompleted, says: `"promoted": true`},
		"a failed copy":    {exit: jobs.ExitRecord{State: jobs.StateFailed, Code: 1, Overlay: copied}, want: jobs.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.bundle {
				if err := os.WriteFile(filepath.Join(dir, workspace.BundleFile), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.promoted {
				if err := store.SetPromoted(dir, jobs.OverlayUse{}); err != nil {
					t.Fatal(err)
				}
			}
			c.exit.Version, c.exit.Notes = 1, []string{"a note"}
			d := &jobs.Decision{Version: 1, Verb: jobs.VerbAccept, State: c.exit.State, Exit: &c.exit}
			a := &jobs.Attempt{Dir: dir, Info: jobs.AttemptInfo{Version: 1, ID: "a"}, Decision: d}
			if won, err := Attempt(a, "it was killed"); !won || err != nil {
				t.Fatalf("%v, %v", won, err)
			}
			b, err := os.ReadFile(filepath.Join(dir, store.FileExit))
			if err != nil {
				t.Fatal(err)
			}
			if text := string(b); !strings.Contains(text, `"state": "`+string(c.want)+`"`) || !strings.Contains(text, "a note") || !strings.Contains(text, "it was killed") || !strings.Contains(text, c.says) {
				t.Error(text)
			}
			if len(c.exit.Notes) != 1 || c.exit.State != d.State || copied.Promoted {
				t.Errorf("the decision was changed: %+v", c.exit)
			}
			if won, err := Attempt(a, "again"); won || err != nil {
				t.Errorf("twice: %v, %v", won, err)
			}
		})
	}
}

// TestVerdict: the tree of a killed runner's task has no .git when the verdict
// says where it is.
func TestVerdict(t *testing.T) {
	for name, record := range map[string]func(dir string) (bool, error){
		"lost": func(dir string) (bool, error) {
			return Verdict(dir, jobs.Verdict{Version: 1, State: jobs.StateLost, Hint: "see there"})
		},
		"accepted": func(dir string) (bool, error) {
			exit := &jobs.ExitRecord{Version: 1, State: jobs.StateCompleted}
			return Attempt(&jobs.Attempt{Dir: dir, Decision: &jobs.Decision{Version: 1, Verb: jobs.VerbAccept, State: exit.State, Exit: exit}}, "it was killed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			work := filepath.Join(dir, workspace.WorkDir)
			if err := os.MkdirAll(filepath.Join(work, "sub", ".git"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(work, "a.txt"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if won, err := record(dir); !won || err != nil {
				t.Fatalf("%v, %v", won, err)
			}
			if _, err := os.Lstat(filepath.Join(work, "sub", ".git")); !os.IsNotExist(err) {
				t.Errorf("the task's .git: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(work, "a.txt")); err != nil {
				t.Error(err)
			}
		})
	}
	if won, err := Verdict(t.TempDir(), jobs.Verdict{Version: 1, State: jobs.StateLost}); !won || err != nil {
		t.Errorf("without a tree: %v, %v", won, err)
	}
}
