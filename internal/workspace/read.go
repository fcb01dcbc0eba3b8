package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// openTree opens a work tree, which must still be the directory it was. A task
// may have taken the permission to read it away.
func openTree(dir string) (*os.Root, error) {
	dir = filepath.Clean(dir)
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	name := filepath.Base(dir)
	seen, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, fmt.Errorf("%q is not a directory", dir)
	}
	// It was seen with Lstat, so it is no link that chmod would follow.
	if seen.Mode().Perm()&0o500 != 0o500 {
		if err := parent.Chmod(name, 0o700); err != nil {
			return nil, err
		}
	}
	root, err := parent.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(seen, opened) {
		err = fmt.Errorf("%q changed while it was opened", dir)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// openWork opens the work tree. One that stands in another must still be a directory
// there, and so must what is above it.
func (g *Git) openWork(attemptDir string) (*os.Root, error) {
	root, err := openTree(g.topOf(attemptDir))
	if err != nil || g.Below == "" {
		return root, err
	}
	for part := range strings.SplitSeq(g.Below, "/") {
		inner, err := openDir(root, part)
		_ = root.Close()
		if err != nil {
			return nil, &Error{Kind: ErrReplaced, Err: err, Tip: "the task has to leave it a directory",
				Msg: fmt.Sprintf("%s is not the work tree any more that the task was given: %v", g.Below, err)}
		}
		root = inner
	}
	return root, nil
}

// openDir opens a directory of the tree, and no link in its place.
func openDir(root *os.Root, dir string) (*os.Root, error) {
	seen, err := root.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, fmt.Errorf("%q is not a directory", dir)
	}
	return openSeen(root, dir, seen)
}

// openSeen opens the directory that was seen with Lstat, and no other.
func openSeen(parent *os.Root, name string, seen fs.FileInfo) (*os.Root, error) {
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	opened, err := dir.Stat(".")
	if err == nil && !os.SameFile(seen, opened) {
		err = errors.New("changed while it was opened")
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// contentOf gives the bytes of a file, or the target of a link, and how many
// they are: not more than were seen, to which the limits were applied. It can
// be interrupted.
func contentOf(ctx context.Context, work *os.Root, f found) (io.ReadCloser, int64, error) {
	if f.mode == modeLink {
		target, err := work.Readlink(f.path)
		if err != nil {
			return nil, 0, err
		}
		return io.NopCloser(strings.NewReader(target)), int64(len(target)), nil
	}
	file, fi, err := openRegular(work, f.path)
	if err != nil {
		return nil, 0, err
	}
	if fi.Size() > f.sizeBytes && f.live { // as it was when it was seen
		return &content{ctx: ctx, file: file}, f.sizeBytes, nil
	}
	if fi.Size() > f.sizeBytes {
		return nil, 0, errors.Join(errors.New("grew while it was read"), file.Close())
	}
	return &content{ctx: ctx, file: file}, fi.Size(), nil
}

// content reads a file until the context is done. The errors of the file, not
// those of the context, are marked, to tell them from those of the writer.
type content struct {
	ctx  context.Context
	file *os.File
}

type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

func (e *readError) Unwrap() error { return e.err }

// maxRead bounds what is read between two looks at the context.
const maxRead = 1 << 20

func (c *content) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.file.Read(p[:min(len(p), maxRead)])
	if err != nil && !errors.Is(err, io.EOF) {
		err = &readError{err}
	}
	return n, err
}

func (c *content) Close() error { return c.file.Close() }

// openRegular opens a regular file of the tree for reading. A symbolic link is
// not followed, and a FIFO does not block: what was opened must be the regular
// file that was seen.
func openRegular(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	seen, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !seen.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%q is not a regular file", name)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(seen, opened) {
		err = fmt.Errorf("%q changed while it was opened", name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, opened, nil
}

// readNames lists a directory of the tree in order of bytes, without following
// a link in its place. It reads at most limit names.
func readNames(ctx context.Context, root *os.Root, dir string, limit int) ([]string, error) {
	if dir == "" {
		dir = "."
	}
	seen, err := root.Lstat(dir)
	if err != nil {
		return nil, err
	}
	f, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if opened, err := f.Stat(); err != nil {
		return nil, err
	} else if !seen.IsDir() || !os.SameFile(seen, opened) {
		return nil, fmt.Errorf("%q is not a directory", dir)
	}
	var names []string
	for limit = max(limit, 1); len(names) < limit; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		some, err := f.Readdirnames(min(limit-len(names), 8192))
		names = append(names, some...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
}

// reason is the plain cause of a file system error, without the path that the
// report names anyway.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
