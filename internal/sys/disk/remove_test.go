package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
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

// A file that stays for a moment after it was removed, as an open one does on
// FUSE and NFS, is waited for; what stays for another reason is told at once.
func TestRemoveTreeWaits(t *testing.T) {
	for range 20 {
		dir := filepath.Join(t.TempDir(), "tree")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		begun, end := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(end)
			for i := 0; ; i++ {
				err := os.WriteFile(filepath.Join(dir, ".fuse_hidden"+strconv.Itoa(i%3)), nil, 0o600)
				if i == 0 {
					close(begun)
				}
				if i > 3000 || errors.Is(err, fs.ErrNotExist) {
					return
				}
			}
		}()
		<-begun
		if err := RemoveTree(dir); err != nil {
			t.Error(err)
		}
		<-end
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	// Several remove one tree.
	for range 20 {
		dir := filepath.Join(t.TempDir(), "tree")
		for i := range 20 {
			if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(i), "x"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		errs := make(chan error, 4)
		for range cap(errs) {
			go func() { errs <- RemoveTree(dir) }()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	}
	if err := errors.Join(unix.ENOTEMPTY, unix.EACCES); lingers(err) || lingers(nil) {
		t.Error("waited for what does not go by itself")
	}
	if err := errors.Join(unix.ENOTEMPTY, &fs.PathError{Err: unix.EBUSY}); !lingers(err) {
		t.Error("an open file is not waited for")
	}
}
