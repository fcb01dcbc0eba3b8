package private

import (
	"os"
	"path/filepath"
	"testing"

	"berth/jobs"
)

func TestOwnDir(t *testing.T) {
	base := t.TempDir()
	dir := func() string {
		t.Helper()
		d, err := OwnDir(base, "berth-x")
		if err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Lstat(d); err != nil || !fi.IsDir() || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", d, fi, err)
		}
		return d
	}
	first := dir()
	if first != filepath.Join(base, "berth-x") || dir() != first {
		t.Errorf("%s", first)
	}
	// What others may enter, what is a link or a file, or someone else's, is not taken.
	for name, plant := range map[string]func(path string) error{
		"open":    func(p string) error { return os.Chmod(p, 0o755) },
		"a link":  func(p string) error { return os.Symlink(t.TempDir(), p) },
		"a file":  func(p string) error { return os.WriteFile(p, nil, 0o700) },
		"another": func(p string) error { return os.Chown(p, 12345, 12345) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "another" && os.Getuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			if name == "a link" || name == "a file" {
				if err := os.RemoveAll(first); err != nil {
					t.Fatal(err)
				}
			} else if err := os.MkdirAll(first, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := plant(first); err != nil {
				t.Fatal(err)
			}
			got := dir()
			if got == first || dir() != got {
				t.Errorf("%s", got)
			}
			if err := os.RemoveAll(first); err != nil {
				t.Fatal(err)
			}
		})
	}
	if err := os.Chmod(base, 0o777); err != nil {
		t.Fatal(err)
	}
	if d, err := OwnDir(base, "berth-y"); err == nil || jobs.HintOf(err) == "" {
		t.Errorf("%s, %v", d, err)
	}
}

// The base of a scratch directory is the one that was asked for, wherever below it
// that stands.
func TestBaseOf(t *testing.T) {
	base := t.TempDir()
	own, err := OwnDir(base, DirOf(Scratch))
	if err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(base, DirOf(Scratch)+"-1234") // where the name was taken
	for _, place := range []string{base, own, taken} {
		if got := BaseOf(filepath.Join(place, "berth-1a2b3c")); got != base {
			t.Errorf("below %s: %s", place, got)
		}
	}
}
