package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"berth/internal/sys/failpoint"
)

// WriteTemp writes data to a new file of a random name in dir, with this mode,
// and syncs it. The caller gives it its name, by link(2) or rename(2).
func WriteTemp(dir string, data []byte, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", err
	}
	failpoint.Hit("temp.made")
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	failpoint.Hit("temp.written")
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// Replace puts a file with this content and mode at path, in the place of what
// stands there. Whoever reads sees the old one or the new one, whole, and after a
// crash it is one of them.
func Replace(path string, data []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := WriteTemp(dir, data, mode)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return SyncDir(dir)
}

// Create puts a file with this content and mode at path, whole, where nothing
// stands yet; else the error is [fs.ErrExist].
func Create(path string, data []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := WriteTemp(dir, data, mode)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Link(tmp, path), os.Remove(tmp)); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncFile makes a file's content durable.
func SyncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// SyncDir makes new names in a directory durable. File systems that cannot
// sync a directory say so, and then there is nothing to do.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// Bare is an error of a file without its name, which may be that of a temporary one.
func Bare(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
