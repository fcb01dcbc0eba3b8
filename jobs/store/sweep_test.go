package store

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSweepAll removes what is a day old and of a killed process, and nothing
// else.
func TestSweepAll(t *testing.T) {
	s := open(t)
	r := create(t, s)
	key, err := s.MakeKeyDir(KeyHash("k"))
	must(t, err)
	must(t, os.MkdirAll(s.Bin(), 0o700))
	attempts := filepath.Join(r.Dir, dirAttempts)
	old := time.Now().Add(-2 * leftFor)
	var gone, stay []string
	for _, dir := range []string{r.Dir, attempts, r.Current().Dir, key, s.Bin()} {
		for name, list := range map[string]*[]string{".new-1": &gone, ".new-2": &stay, "new-3": &stay, ".other": &stay} {
			path := filepath.Join(dir, name)
			must(t, os.WriteFile(path, nil, 0o600))
			if name != ".new-2" { // someone is at it
				must(t, os.Chtimes(path, old, old))
			}
			*list = append(*list, path)
		}
	}
	for _, path := range []string{filepath.Join(attempts, ".new-attempt"), filepath.Join(attempts, ".gone-attempt"), filepath.Join(s.Home(), dirSchedules, ".new-1"),
		filepath.Join(s.Envs(), prefixNew+r.Spec.ID+"-1"), filepath.Join(s.Envs(), prefixGone+r.Spec.ID)} {
		must(t, os.MkdirAll(filepath.Join(path, "x"), 0o700))
		must(t, os.Chtimes(path, old, old))
		gone = append(gone, path)
	}
	dir := filepath.Join(r.Current().Dir, ".new-artifacts") // of the runner
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chtimes(dir, old, old))
	stay = append(stay, dir)
	must(t, s.SweepAll())
	for _, path := range gone {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range stay {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	_, err = s.Load(r.Spec.ID)
	must(t, err)
}
