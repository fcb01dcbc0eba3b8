package staging

import (
	"os"
	"testing"

	"berth/internal/node/container"
)

// What would take memory is told from a disk.
func TestFindMemory(t *testing.T) {
	const shm = "/dev/shm"
	if !container.InMemory(shm) {
		t.Skip(shm + " is not in memory")
	}
	base, err := os.MkdirTemp(shm, "berth-test-") //nolint:usetesting // that is in memory
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = os.RemoveAll(base) }()
	for dir, want := range map[string]bool{base: true, t.TempDir(): container.InMemory(os.TempDir())} {
		at := Find(t.TempDir(), dir, func(string) string { return "" })
		if at.Dir == "" || at.Memory != want {
			t.Errorf("%s: %+v", dir, at)
		}
	}
}
