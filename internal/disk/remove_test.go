package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestRemoveTree(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(RemoveTree(filepath.Join(dir, "missing")))
	must(RemoveTree(filepath.Join(dir, "missing", "too")))
	target := filepath.Join(dir, "target")
	must(os.Mkdir(target, 0o700))
	must(os.WriteFile(filepath.Join(target, "canary"), nil, 0o600))
	link := filepath.Join(dir, "link")
	must(os.Symlink(target, link))
	must(RemoveTree(link)) // the link, and not what it leads to
	if _, err := os.Stat(filepath.Join(target, "canary")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(link); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	deep := target
	for range 200 {
		deep = filepath.Join(deep, "0123456789")
	}
	must(os.MkdirAll(deep, 0o700))
	must(RemoveTree(target))
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := RemoveTree("/proc/self/fd"); err == nil {
		t.Error("what cannot be removed was")
	}
}
