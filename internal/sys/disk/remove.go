package disk

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// maxDepth is how deep a tree is removed in place; what is deeper is moved up
// first, because every level holds a file descriptor.
const maxDepth = 64

// RemoveTree removes a file or a directory with all below it, which a task or
// a container may have written: directories without write permission are made
// writable (a FUSE overlay leaves one of mode 000), symbolic links are removed
// and not followed, and no depth is too deep. A missing path is no error, nor is
// one that another process removes meanwhile. What cannot be removed is in the
// error, and the rest is gone.
func RemoveTree(tree string) error {
	err := removeTree(tree)
	// What passes while this process stands still is no wait: the other one may
	// have stood still as well.
	for waited, pause := time.Duration(0), time.Millisecond; lingers(err) && waited < lingerTime; pause = min(2*pause, 100*time.Millisecond) {
		time.Sleep(pause)
		waited += pause
		err = removeTree(tree)
	}
	if errors.Is(err, fs.ErrNotExist) { // of no other path: [remover.failed] keeps none
		return nil
	}
	return err
}

// lingerTime bounds the wait for a file that is removed and still there. A child
// that begins another program on a busy machine may take seconds to do so.
const lingerTime = 10 * time.Second

// lingers tells whether all that is in the way are files that go by themselves. FUSE and NFS
// give a file that a process has open another name in its directory (.fuse_hidden,
// .nfs), until it is closed: by a child of this process that begins another
// program just now, or by the kernel, which does not wait for that.
func lingers(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !lingers(err) })
	}
	return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY)
}

func removeTree(tree string) error {
	dir, name := filepath.Split(filepath.Clean(tree))
	root, err := os.OpenRoot(filepath.Clean(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	fi, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return root.Remove(name)
	}
	if err := writable(root, name, fi); err != nil {
		return err
	}
	top, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	r := &remover{top: top}
	r.empty(top, ".", 0)
	// Each round may move more up.
	for r.moved > 0 && len(r.errs) == 0 {
		r.moved = 0
		r.empty(top, ".", 0)
	}
	if err := top.Close(); err != nil {
		r.errs = append(r.errs, err)
	}
	if len(r.errs) > 0 {
		return errors.Join(r.errs...)
	}
	return root.Remove(name)
}

type remover struct {
	top *os.Root
	serial,
	moved int
	errs []error
}

func (r *remover) failed(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) && len(r.errs) < 10 {
		r.errs = append(r.errs, err)
	}
}

// empty removes all entries of the directory that root is; at is its path
// below top.
func (r *remover) empty(root *os.Root, at string, depth int) {
	f, err := root.Open(".")
	if err != nil {
		r.failed(err)
		return
	}
	names, err := f.Readdirnames(-1)
	r.failed(err)
	r.failed(f.Close())
	for _, name := range names {
		// Files and directories that are empty, which are most of them, need no look.
		if root.Remove(name) == nil {
			continue
		}
		fi, err := root.Lstat(name)
		if err != nil {
			r.failed(err)
			continue
		}
		if !fi.IsDir() {
			r.failed(root.Remove(name))
			continue
		}
		if err := writable(root, name, fi); err != nil {
			r.failed(err)
			continue
		}
		if depth >= maxDepth {
			r.failed(r.moveUp(path.Join(at, name)))
			continue
		}
		sub, err := root.OpenRoot(name)
		if err != nil {
			r.failed(err)
			continue
		}
		r.empty(sub, path.Join(at, name), depth+1)
		r.failed(sub.Close())
		r.failed(root.Remove(name))
	}
}

// moveUp moves a deep directory to the top of the tree, for a later round.
func (r *remover) moveUp(p string) error {
	for {
		r.serial++
		to := "moved-up-" + strconv.Itoa(r.serial)
		if _, err := r.top.Lstat(to); err == nil {
			continue
		}
		r.moved++
		return r.top.Rename(p, to)
	}
}

// writable makes a directory one that can be listed and emptied. The
// directory was seen with Lstat, so it is no link that chmod would follow.
func writable(root *os.Root, name string, fi fs.FileInfo) error {
	if fi.Mode().Perm()&0o700 == 0o700 {
		return nil
	}
	return root.Chmod(name, 0o700)
}
