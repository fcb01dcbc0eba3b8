package store

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// All processes of a state directory get the same word, and two directories
// different ones.
func TestOwner(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 8)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			var err error
			if got[i], err = s.Owner(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, g := range got {
		if g != got[0] || len(g) != 32 {
			t.Fatalf("%q", got)
		}
	}
	other, err := Open(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	if o, err := other.Owner(); err != nil || o == got[0] {
		t.Errorf("%q %v", o, err)
	}
	if fi, err := os.Stat(filepath.Join(s.Home(), fileOwner)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Error(fi, err)
	}
	for _, bad := range []string{"", "../..", got[0] + "0"} {
		if err := os.WriteFile(filepath.Join(s.Home(), fileOwner), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if o, err := s.Owner(); err == nil {
			t.Errorf("%q is taken for an owner: %q", bad, o)
		}
	}
}
