package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"berth/internal/link/wire"

	"golang.org/x/sys/unix"
)

// errNotWritable is a root directory that cannot be written.
var errNotWritable = errors.New("the root directory cannot be written")

// proveWritable writes a file into root and removes it. A full file system is
// a writable one, from which something can be removed; so is a root directory
// whose own mode forbids it, as long as that mode can be written.
func proveWritable(root string) error {
	f, err := os.CreateTemp(root, ".berth-*")
	if err == nil {
		_, err = f.WriteString("x")
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return nil
	case errors.Is(err, fs.ErrPermission):
		fi, serr := os.Stat(root)
		if serr == nil {
			serr = os.Chmod(root, fi.Mode()) // a read-only file system says so
		}
		if serr == nil {
			return nil
		}
		if !errors.Is(serr, fs.ErrPermission) {
			err = serr
		}
	}
	return fmt.Errorf("%w: %w", errNotWritable, err)
}

// space tells how full the file system of a path is.
func (o *fileOp) space(path string) (*wire.FileResult, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	return &wire.FileResult{Space: &wire.FileSpaceInfo{
		Size: int64(st.Blocks) * unit, Free: int64(st.Bavail) * unit, Files: int64(st.Files), FreeFiles: int64(st.Ffree),
	}}, nil
}
