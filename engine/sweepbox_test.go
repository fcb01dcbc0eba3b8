package engine

import (
	"os"
	"path/filepath"
	"testing"

	"berth/internal/sweep"
	"berth/jobs"
	"berth/jobs/store"
)

// What a worker that was killed has left of a container goes, but for what its tasks have asked
// models for.
func TestSweepBoxForget(t *testing.T) {
	worker := t.TempDir()
	counted, empty := filepath.Join(worker, sweep.BoxDir), filepath.Join(worker, sweep.BoxDir+".2")
	for _, dir := range []string{counted, empty} {
		must(t, os.MkdirAll(filepath.Join(dir, "work"), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "env.json"), nil, 0o600))
	}
	must(t, store.SetUsage(counted, jobs.Usage{Requests: 3}))
	for _, dir := range []string{counted, empty} {
		sweepBox{dir: dir}.forget(t.Context())
	}
	files, err := os.ReadDir(worker)
	must(t, err)
	left, err := os.ReadDir(counted)
	must(t, err)
	if u, err := store.LoadUsage(counted); len(files) != 1 || len(left) != 1 || err != nil || u.Requests != 3 {
		t.Errorf("%v, %v: %+v %v", files, left, u, err)
	}
}
