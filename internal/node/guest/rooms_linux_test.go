package guest

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRooms has a directory for each room below one that goes with the guest, and makes that
// again where a command has removed it.
func TestRooms(t *testing.T) {
	var r rooms
	t.Cleanup(func() { _ = os.RemoveAll(r.dir) })
	scratch := func() string {
		t.Helper()
		dir, err := r.scratch()
		if err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Fatalf("%s: %v, %v", dir, fi, err)
		}
		return dir
	}
	first, second := scratch(), scratch()
	above := filepath.Dir(first)
	if first == second || filepath.Dir(second) != above || filepath.Dir(above) != ownScratch {
		t.Errorf("rooms have %s and %s", first, second)
	}
	r.remove()
	if _, err := os.Stat(first); err != nil {
		t.Errorf("what is in use was removed: %v", err)
	}
	if err := os.RemoveAll(above); err != nil {
		t.Fatal(err)
	}
	third := scratch()
	if filepath.Dir(third) == above {
		t.Errorf("a directory that is gone was used: %s", third)
	}
	if err := os.Remove(third); err != nil {
		t.Fatal(err)
	}
	r.remove()
	if _, err := os.Stat(filepath.Dir(third)); !os.IsNotExist(err) {
		t.Errorf("the directory of rooms is left: %v", err)
	}
}
