package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// private makes sure that a directory is the user's own and closed to others.
func private(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !fi.IsDir() || !ok || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to another user", dir)
	}
	return os.Chmod(dir, 0o700)
}

// privateDir is a directory for the guest's own files, made when one is needed
// and removed when the guest leaves.
type privateDir struct {
	mu  sync.Mutex
	dir string
}

// create makes a file that only the user can read. The task owns the directory
// as much as the guest does; when it is gone, there is a new one.
func (d *privateDir) create(name string) (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := d.open(name)
	if errors.Is(err, os.ErrNotExist) {
		if err = d.fresh(); err != nil {
			return nil, err
		}
		f, err = d.open(name)
	}
	return f, err
}

// fresh makes the directory.
func (d *privateDir) fresh() (err error) {
	if d.dir, err = os.MkdirTemp("/tmp", "berth-"); err != nil {
		d.dir, err = os.MkdirTemp("", "berth-")
	}
	return err
}

// subdir makes a directory in it.
func (d *privateDir) subdir() (dir string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dir != "" {
		dir, err = os.MkdirTemp(d.dir, "shell-")
	}
	if d.dir == "" || errors.Is(err, os.ErrNotExist) {
		if err = d.fresh(); err == nil {
			dir, err = os.MkdirTemp(d.dir, "shell-")
		}
	}
	return dir, err
}

func (d *privateDir) open(name string) (*os.File, error) {
	if d.dir == "" {
		return nil, os.ErrNotExist
	}
	return os.OpenFile(filepath.Join(d.dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// remove removes everything.
func (d *privateDir) remove() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}
