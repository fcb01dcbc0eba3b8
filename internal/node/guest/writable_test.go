//go:build linux

package guest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProveWritable(t *testing.T) {
	dir := t.TempDir()
	if err := proveWritable(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	// A task may have forbidden itself to write there.
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	if err := proveWritable(dir); err != nil {
		t.Error(err)
	}
	if err := proveWritable(filepath.Join(dir, "none")); !errors.Is(err, errNotWritable) || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		if err := proveWritable("/etc"); !errors.Is(err, errNotWritable) {
			t.Error(err)
		}
	}
}

// mounted runs test on a thread with mounts of its own, on a small file system
// at dir.
func mounted(t *testing.T, dir, options string, test func() error) {
	t.Helper()
	got := make(chan error)
	go func() { // the thread ends with its goroutine
		runtime.LockOSThread()
		got <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return errors.ErrUnsupported
			}
			if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
				return err
			}
			return test()
		}()
	}()
	if err := <-got; errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this user cannot mount")
	} else if err != nil {
		t.Error(err)
	}
}

func TestReadOnlyRoot(t *testing.T) {
	dir := t.TempDir()
	mounted(t, dir, "size=1m", func() error {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return err
		}
		if err := proveWritable(dir); !errors.Is(err, errNotWritable) || !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "read-only file system") {
			t.Error(err)
		}
		return nil
	})
}

// TestFullRoot: something can be removed from it.
func TestFullRoot(t *testing.T) {
	dir := t.TempDir()
	for _, options := range []string{"size=64k", "nr_inodes=2"} {
		mounted(t, dir, options, func() error {
			err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 1<<20), 0o600)
			if options == "size=64k" && !errors.Is(err, unix.ENOSPC) || options != "size=64k" && err != nil {
				return errors.Join(errors.New("it is not full"), err)
			}
			if err := proveWritable(dir); err != nil {
				t.Errorf("%s: %v", options, err)
			}
			res, err := (&fileOp{}).space(dir)
			if err != nil {
				return err
			}
			if s := res.Space; s == nil || options == "size=64k" && (s.Size != 64<<10 || s.Free != 0) || options != "size=64k" && (s.Files != 2 || s.FreeFiles != 0) {
				t.Errorf("%s: %+v", options, s)
			}
			return nil
		})
	}
	if _, err := (&fileOp{}).space(filepath.Join(dir, "none")); err == nil {
		t.Error("the space of nothing")
	}
}
