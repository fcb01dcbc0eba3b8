package replica

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// TestNotHere: what did not come is told from what stands here, at any time.
func TestNotHere(t *testing.T) {
	dir := t.TempDir()
	exit := &jobs.ExitRecord{Result: &jobs.Result{Commit: "c"}, Kept: &jobs.KeptTree{Dir: workspace.WorkDir}}
	r := &jobs.Record{Dir: dir, Spec: jobs.Spec{ID: "0123456789abcdef0123456789abcdef", LoginHome: "/there", Place: jobs.Place{Login: &jobs.SSHSpec{Host: "hpc"}}},
		Attempts: []jobs.Attempt{{N: 1, Dir: dir, Exit: exit}}}
	for name, size := range map[string]int64{store.FileStdout: maxLog, store.FileStderr: maxLog - 1, workspace.BundleFile: 1, workspace.ManifestFile: 1} {
		f, err := os.Create(filepath.Join(dir, name))
		if err == nil {
			err = f.Truncate(size)
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	got := NotHere(r)
	for i, want := range []string{"stdout", "diff.patch is larger than 1GiB, and stays on hpc: scp hpc:/there/jobs/", "are kept on hpc in /there/jobs/"} {
		if len(got) != 3 || !strings.Contains(got[i], want) {
			t.Errorf("%d: %q", i, got)
		}
	}
	exit.Artifacts, exit.ArtifactFiles, exit.ArtifactBytes = []string{"x"}, 1, 8<<50 // a hole, there
	if got := NotHere(r); len(got) != 4 || !strings.Contains(got[2], "had no room here, and stay on hpc") {
		t.Errorf("%q", got)
	}
	if err := (&Site{}).artifacts(t.Context(), r, exit); err != nil {
		t.Errorf("they were fetched: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, dirArtifacts), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := NotHere(r); len(got) != 3 {
		t.Errorf("%q", got)
	}
	r.Spec.Retry = jobs.DefaultRetry() // nothing is accepted: only its logs come
	if got := NotHere(r); len(got) != 2 {
		t.Errorf("%q", got)
	}
	r.Spec.Login = nil
	if got := NotHere(r); got != nil {
		t.Errorf("%q", got)
	}
}
