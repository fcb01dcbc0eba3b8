package transfer

import (
	"archive/tar"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// file makes a file, under its own name where that is free, and else under
// another one that it is renamed from.
func (u *unpacker) file(parent *os.Root, base, at string, h *tar.Header) error {
	f, name, err := create(parent, base)
	if err != nil {
		return err
	}
	rerr, werr := u.body(f, h.Size)
	err = werr
	if err == nil && rerr != nil && !errors.Is(rerr, io.EOF) {
		err = streamError(rerr)
	}
	if err == nil {
		err = f.Chmod(fs.FileMode(h.Mode) & fs.ModePerm)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		_ = parent.Chtimes(name, h.ModTime, h.ModTime)
		if name != base {
			err = parent.Rename(name, base)
		}
	}
	if err != nil {
		_ = parent.Remove(name)
		return err
	}
	u.files[maphash.String(u.seed, at)] = struct{}{}
	return nil
}

// sparse tells whether a header promises bytes that do not stand in the stream.
func sparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// create makes a new file that no other user can read yet.
func create(parent *os.Root, base string) (f *os.File, name string, err error) {
	err = inPlaceOf(parent, base, func(n string) (err error) {
		name = n
		f, err = parent.OpenFile(n, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	return f, name, err
}

// inPlaceOf makes something under a name that is free: base, or one beside it
// when something that is no directory has base.
func inPlaceOf(parent *os.Root, base string, try func(name string) error) error {
	err := try(base)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	fi, err := parent.Lstat(base)
	if err != nil {
		return err
	}
	if fi.IsDir() {
		return &fs.PathError{Op: "replace", Path: base, Err: syscall.EISDIR}
	}
	for range 100 {
		if err = try(NewName()); !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// symlink makes a symbolic link; where it leads is not looked at.
func (u *unpacker) symlink(parent *os.Root, base string, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) > maxTarget || strings.ContainsRune(h.Linkname, 0) {
		return badStream("a symbolic link to %q", shorten(h.Linkname))
	}
	return replace(parent, base, func(name string) error { return parent.Symlink(h.Linkname, name) })
}

// link makes a hard link to a file that the stream has made.
func (u *unpacker) link(parent *os.Root, base, at string, h *tar.Header) error {
	to, err := cleanName(h.Linkname)
	if err != nil {
		return err
	}
	if to, err = u.place.below(u.top, to); err != nil {
		return err
	}
	if _, ok := u.files[maphash.String(u.seed, to)]; !ok {
		return badStream("a hard link to %q, which was not in it", shorten(h.Linkname))
	}
	// One way through no symbolic link; afterwards os.Root keeps it below.
	if dir := path.Dir(to); dir != "." {
		d, err := u.walk(dir, false)
		if err != nil {
			return err
		}
		d.Close()
	}
	fi, err := u.place.root.Lstat(to)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return errReplaced
	}
	err = replace(parent, base, func(name string) error {
		return u.place.root.Link(to, path.Join(path.Dir(at), name))
	})
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EMLINK) {
		return u.duplicate(parent, base, to, fi)
	}
	return err
}

// duplicate makes a copy where the file system has no hard links.
func (u *unpacker) duplicate(parent *os.Root, base, to string, seen fs.FileInfo) error {
	from, err := u.place.root.OpenFile(to, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	fi, err := from.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(fi, seen) {
		return errReplaced
	}
	f, name, err := create(parent, base)
	if err != nil {
		return err
	}
	_, rerr, werr := u.move(f, from, fi.Size())
	err = errors.Join(rerr, werr, f.Chmod(fi.Mode().Perm()), f.Close())
	if err == nil {
		_ = parent.Chtimes(name, fi.ModTime(), fi.ModTime())
		if name != base {
			err = parent.Rename(name, base)
		}
	}
	if err != nil {
		_ = parent.Remove(name)
	}
	return err
}

// replace makes something that has no content in place of what is there.
func replace(parent *os.Root, base string, try func(name string) error) error {
	name := ""
	err := inPlaceOf(parent, base, func(n string) error {
		name = n
		return try(n)
	})
	if err != nil || name == base {
		return err
	}
	err = parent.Rename(name, base)
	// A rename between two names of one file does nothing.
	if rerr := parent.Remove(name); err == nil && rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = rerr
	}
	return err
}
