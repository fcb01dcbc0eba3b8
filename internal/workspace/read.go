package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

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
func readNames(root *os.Root, dir string, limit int) ([]string, error) {
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
	names, err := f.Readdirnames(max(limit, 1))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
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
