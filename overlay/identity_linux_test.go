package overlay

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What the container program reads from outside is a plain file, whatever
// commands or an image have put there.
func TestIdentity(t *testing.T) {
	link := func(to string) func(path string) error {
		return func(path string) error { return os.Symlink(to, path) }
	}
	outside := filepath.Join(t.TempDir(), "there")
	must(t, os.WriteFile(outside, []byte("linked"), 0o600))
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"nothing":          {func(string) error { return nil }, ""},
		"a file":           {func(p string) error { return os.WriteFile(p, []byte("own"), 0o600) }, "own"},
		"a link":           {link(outside), "linked"}, // below a root of its own, to what is there
		"a dangling link":  {link("/does/not/exist"), ""},
		"a link to itself": {link("passwd"), ""},
		"a link to a pipe": {link(pipe), ""},
		"to a directory":   {link("/"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			must(t, os.Mkdir(filepath.Join(root, "etc"), 0o700))
			path := filepath.Join(root, "etc/passwd")
			must(t, c.make(path))
			for range 2 {
				must(t, makeIdentity(root))
				fi, err := os.Lstat(path)
				must(t, err)
				if b, err := os.ReadFile(path); !fi.Mode().IsRegular() || string(b) != c.want || err != nil {
					t.Errorf("%v, %q, %v", fi.Mode(), b, err)
				}
			}
			if b, err := os.ReadFile(outside); string(b) != "linked" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	root := t.TempDir()
	must(t, makeIdentity(root)) // no directory
	must(t, os.RemoveAll(filepath.Join(root, "etc")))
	must(t, os.Symlink(filepath.Dir(outside), filepath.Join(root, "etc")))
	if err := makeIdentity(root); err == nil {
		t.Error("a directory that is a link")
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(outside), "passwd")); err == nil {
		t.Error("it was followed")
	}
}

// TestMakeFile: a mount point is made where none is, and a link that leads
// nowhere is replaced, not followed.
func TestMakeFile(t *testing.T) {
	root := t.TempDir()
	file := func(path string) {
		t.Helper()
		must(t, makeFile(path))
		if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", path, fi, err)
		}
	}
	file(filepath.Join(root, "new", "hosts"))
	must(t, os.Symlink("../run/stub.conf", filepath.Join(root, "new", "resolv.conf")))
	file(filepath.Join(root, "new", "resolv.conf"))
	if _, err := os.Lstat(filepath.Join(root, "run")); err == nil {
		t.Error("the link was followed")
	}
	// One that leads to a file, and a file with content, stay.
	must(t, os.WriteFile(filepath.Join(root, "kept"), []byte("x"), 0o600))
	must(t, os.Symlink("kept", filepath.Join(root, "link")))
	must(t, makeFile(filepath.Join(root, "link")))
	must(t, makeFile(filepath.Join(root, "kept")))
	if to, err := os.Readlink(filepath.Join(root, "link")); to != "kept" || err != nil {
		t.Errorf("%q, %v", to, err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "kept")); string(b) != "x" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}
