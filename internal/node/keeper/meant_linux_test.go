package keeper

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

// A job that begins after its environment was removed, and another one made in
// its place, touches nothing of that one.
func TestAnotherOnesPlace(t *testing.T) {
	e := newEnv(t, nil)
	reports := filepath.Join(e.dir, "reports")
	before := names(t, e.dir)
	for _, dir := range []string{e.dir, filepath.Join(e.dir, "gone")} {
		var stderr bytes.Buffer
		code := start([]string{"--env", dir, "--reports", reports, "--id", "another"}, []jobs.Opener{testBackend{}}, os.Stdout, &stderr, quick.times())
		if code == 0 || stderr.Len() == 0 {
			t.Errorf("%s: code %d, %s", dir, code, &stderr)
		}
	}
	// So does one whose end is recorded.
	over := t.TempDir()
	if err := os.WriteFile(filepath.Join(over, FileEnded), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	if code := start([]string{"--env", e.dir, "--reports", filepath.Join(over, "reports"), "--id", e.spec.ID}, []jobs.Opener{testBackend{}}, os.Stdout, &stderr, quick.times()); code != 0 || !strings.Contains(stderr.String(), "given up") {
		t.Errorf("code %d, %s", code, &stderr)
	}
	if after := names(t, e.dir); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("left %v, not %v", after, before)
	}
	if err := meant(e.dir, e.spec.ID); err != nil {
		t.Error(err)
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
