package transfer

import (
	"archive/tar"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// directoryAt opens a directory below the place's root, and makes what is
// missing. It goes through no symbolic link.
func (u *unpacker) directoryAt(at string) (*os.Root, error) {
	if at == "." {
		return u.place.root, nil
	}
	if u.parent != nil && u.parentAt == at {
		return u.parent, nil
	}
	dir, err := u.walk(at, true)
	if err != nil {
		return nil, err
	}
	if u.parent != nil {
		u.parent.Close()
	}
	u.parent, u.parentAt = dir, at
	return dir, nil
}

// walk opens a directory for its caller to close.
func (u *unpacker) walk(at string, create bool) (*os.Root, error) {
	dir, rest := u.place.root, at
	// From the directory before, when it is above.
	if u.parent != nil && strings.HasPrefix(at, u.parentAt+"/") {
		dir, rest = u.parent, at[len(u.parentAt)+1:]
	}
	begin := dir
	for c := range strings.SplitSeq(rest, "/") {
		next, err := step(dir, c, create)
		if dir != begin {
			dir.Close()
		}
		if err != nil {
			return nil, locate(err, u.full(at))
		}
		dir = next
	}
	return dir, nil
}

// step opens an entry that is a directory.
func step(dir *os.Root, name string, create bool) (*os.Root, error) {
	fi, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err = dir.Mkdir(name, 0o755); err == nil {
			fi, err = dir.Lstat(name)
		}
	}
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	return openDirectory(dir, name, fi)
}

// directory makes a directory, or takes the one that is there.
func (u *unpacker) directory(parent *os.Root, base, at string, h *tar.Header) error {
	m := made{mode: fs.FileMode(h.Mode) & fs.ModePerm, time: h.ModTime}
	err := parent.Mkdir(base, 0o700) // its own mode may keep files out
	if errors.Is(err, fs.ErrExist) {
		fi, lerr := parent.Lstat(base)
		if lerr != nil {
			return lerr
		}
		if !fi.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: base, Err: syscall.ENOTDIR}
		}
		if _, ours := u.made[at]; ours {
			u.made[at] = m
		}
		return nil
	}
	if err == nil {
		u.made[at] = m
	}
	return err
}

// finish gives the directories that were made their modes and times, the
// deepest first: what is in them was made before.
func (u *unpacker) finish() error {
	paths := make([]string, 0, len(u.made))
	for at := range u.made {
		paths = append(paths, at)
	}
	slices.Sort(paths)
	var first error
	for _, at := range slices.Backward(paths) {
		if err := u.finishOne(at, u.made[at]); err != nil && first == nil {
			first = locate(err, u.full(at))
		}
	}
	return first
}

func (u *unpacker) finishOne(at string, m made) error {
	parent, err := u.directoryAt(path.Dir(at))
	if err != nil {
		return err
	}
	fi, err := parent.Lstat(path.Base(at))
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return errReplaced
	}
	dir, err := openDirectory(parent, path.Base(at), fi)
	if err != nil {
		return err
	}
	defer dir.Close()
	_ = dir.Chtimes(".", m.time, m.time) // a time is not worth a failure
	if m.mode != fi.Mode().Perm() {
		// A directory that hands its group down goes on doing so.
		return dir.Chmod(".", m.mode|fi.Mode()&fs.ModeSetgid)
	}
	return nil
}
