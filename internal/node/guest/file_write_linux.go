package guest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"berth/internal/link/transfer"
	"berth/internal/link/wire"

	"golang.org/x/sys/unix"
)

// newFile takes the place of another file when it is whole.
type newFile struct {
	target string // no symbolic link
	f      *os.File
}

// beginFile makes a new file beside the one at path, or beside what path leads
// to.
func beginFile(path string) (*newFile, error) {
	target, err := leadsTo(path)
	if err != nil {
		return nil, err
	}
	if _, err := replaceable(target); err != nil {
		return nil, err
	}
	dir := filepath.Dir(target)
	if _, err := os.Stat(dir); err != nil {
		return nil, err // names the directory, and not the new file
	}
	f, err := os.OpenFile(dir+"/"+transfer.NewName(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return nil, refuse(wire.FilePermission, "%s: its directory cannot be written, and a file is only replaced as a whole", quoted(path))
	}
	if err != nil {
		return nil, &fs.PathError{Op: "write", Path: target, Err: reason(err)}
	}
	return &newFile{target: target, f: f}, nil
}

// leadsTo follows symbolic links at the end of a path; the last one may lead
// to what does not exist yet.
func leadsTo(path string) (string, error) {
	if base := filepath.Base(path); path[len(path)-1] == '/' || base == "." || base == ".." {
		return "", &fs.PathError{Op: "write", Path: path, Err: unix.EISDIR}
	}
	for range 40 {
		fi, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			// Not joined: that would take ".." for text.
			to = path[:len(path)-len(filepath.Base(path))] + to
		}
		path = to
	}
	return "", &fs.PathError{Op: "write", Path: path, Err: unix.ELOOP}
}

// replaceable returns what is at target, nil when nothing is, and refuses what
// a command could not write either.
func replaceable(target string) (fs.FileInfo, error) {
	fi, err := os.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none, and that is fine
	}
	if err != nil {
		return nil, err
	}
	if err := regular(target, fi); err != nil {
		return nil, err
	}
	if err := unix.Faccessat(unix.AT_FDCWD, target, unix.W_OK, unix.AT_EACCESS); err != nil && !errors.Is(err, unix.ENOSYS) {
		return nil, &fs.PathError{Op: "write", Path: target, Err: err}
	}
	return fi, nil
}

// commit gives the new file the mode and the owner of the old one, and its
// name. A mode that is not 0 is the new file's.
func (n *newFile) commit(mode uint32) (fs.FileInfo, error) {
	if err := n.f.Sync(); err != nil {
		return nil, err
	}
	old, err := replaceable(n.target)
	if err != nil {
		return nil, err
	}
	perm := fs.FileMode(0o644)
	if old != nil {
		perm = old.Mode().Perm()
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			// Only root can give a file away; a group may be one of the user's.
			if n.f.Chown(int(st.Uid), int(st.Gid)) != nil {
				_ = n.f.Chown(-1, int(st.Gid))
			}
		}
	}
	if mode != 0 {
		perm = fs.FileMode(mode) & fs.ModePerm
	}
	if err := n.f.Chmod(perm); err != nil {
		return nil, err
	}
	fi, err := n.f.Stat()
	if err != nil {
		return nil, err
	}
	if err := n.f.Close(); err != nil {
		return nil, err
	}
	err = os.Rename(n.f.Name(), n.target)
	if errors.Is(err, unix.EBUSY) {
		return nil, refuse(wire.FileFailed, "%s: it is mounted from elsewhere and cannot be replaced; a command can write into it", quoted(n.target))
	}
	return fi, err
}

// discard removes what was not committed.
func (n *newFile) discard() {
	_ = n.f.Close()
	_ = os.Remove(n.f.Name())
}

func (o *fileOp) write(path string, in io.Reader) (*wire.FileResult, error) {
	if o.req.Parents && path[len(path)-1] != '/' {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
	}
	n, err := beginFile(path)
	if err != nil {
		return nil, err
	}
	defer n.discard()
	written, err := io.CopyBuffer(struct{ io.Writer }{n.f}, in, make([]byte, 64<<10))
	if err == nil {
		err = o.aborted()
	}
	if err != nil {
		return nil, namedBy(path, err)
	}
	defer lockFile(n.target)()
	if o.req.Op == wire.FileReplace {
		if err := o.still(n.target); err != nil {
			return nil, err
		}
	}
	fi, err := n.commit(o.req.Mode)
	if err != nil {
		return nil, namedBy(path, err)
	}
	return &wire.FileResult{Entry: entryOf(shownPath(path), fi), Bytes: written}, nil
}

// still refuses a file that has not the content that the client wants to
// replace.
func (o *fileOp) still(path string) error {
	f, _, err := openRegular(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, wire.MaxReplace+1)); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), o.req.Was) {
		return refuse(wire.FileChanged, "%s: something else changes it at the same time", quoted(path))
	}
	return nil
}

// namedBy names the file that was asked for in an error about the new one.
func namedBy(path string, err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return &fs.PathError{Op: "write", Path: path, Err: p.Err}
	case errors.As(err, &l):
		return &fs.PathError{Op: "write", Path: path, Err: l.Err}
	}
	return err
}

// editing are the files that are being replaced, so that of two replacements of
// the same content only one is made.
var editing = struct {
	mu    sync.Mutex
	files map[string]*fileLock
}{files: map[string]*fileLock{}}

type fileLock struct {
	mu    sync.Mutex
	users int
}

// lockFile keeps other writes away from a file until unlock is called.
func lockFile(target string) (unlock func()) {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(target)); err == nil {
		target = filepath.Join(dir, filepath.Base(target))
	}
	editing.mu.Lock()
	l := editing.files[target]
	if l == nil {
		l = &fileLock{}
		editing.files[target] = l
	}
	l.users++
	editing.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		editing.mu.Lock()
		defer editing.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(editing.files, target)
		}
	}
}
