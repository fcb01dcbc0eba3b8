package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveTree removes a directory that a container has written: tasks leave
// directories without write permission, and fuse-overlayfs leaves one of mode
// 000. Modes are opened up through an [os.Root], so that no symbolic link of
// the task's is followed out of the tree. A missing path is no error.
func RemoveTree(path string) error {
	err := os.RemoveAll(path)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	root, rerr := os.OpenRoot(filepath.Dir(path))
	if rerr != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	defer func() { _ = root.Close() }()
	openUp(root, filepath.Base(path))
	if err := root.RemoveAll(filepath.Base(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// openUp gives the owner all rights on every directory below name, top down;
// what cannot be changed shows up when the removal fails.
func openUp(root *os.Root, name string) {
	fi, err := root.Lstat(name)
	if err != nil || !fi.IsDir() {
		return
	}
	_ = root.Chmod(name, 0o700)
	d, err := root.Open(name)
	if err != nil {
		return
	}
	entries, _ := d.ReadDir(-1)
	_ = d.Close()
	for _, e := range entries {
		if e.IsDir() {
			openUp(root, filepath.Join(name, e.Name()))
		}
	}
}
