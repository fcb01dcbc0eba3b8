package guest

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"berth/internal/link/wire"

	"golang.org/x/sys/unix"
)

// readLimit is how much is read when a request sets no limit.
const readLimit = 1 << 20

// entryOf describes what lstat(2) has shown.
func entryOf(path string, fi fs.FileInfo) *wire.FileEntry {
	e := &wire.FileEntry{Path: wire.Text(path), Type: "other", Mode: uint32(fi.Mode().Perm()), Size: fi.Size(), Time: fi.ModTime()}
	switch fi.Mode().Type() {
	case 0:
		e.Type = "file"
	case fs.ModeDir:
		e.Type = "directory"
	case fs.ModeSymlink:
		e.Type = "symlink"
	}
	return e
}

func (o *fileOp) stat(path string) (*wire.FileResult, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	e := entryOf(shownPath(path), fi)
	if e.Type == "symlink" {
		to, err := os.Readlink(path)
		if err != nil {
			return nil, err
		}
		e.Target = wire.Text(to)
	}
	return &wire.FileResult{Entry: e}, nil
}

// openRegular opens a file and nothing that blocks, or does things when it is
// opened.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := regular(path, fi); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if fi, err = f.Stat(); err == nil {
		err = regular(path, fi)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

func regular(path string, fi fs.FileInfo) error {
	switch {
	case fi.IsDir():
		return &fs.PathError{Op: "open", Path: path, Err: unix.EISDIR}
	case !fi.Mode().IsRegular():
		return refuse(wire.FileNotRegular, "%s: not a regular file, but a socket, a device or a pipe", quoted(path))
	}
	return nil
}

func (o *fileOp) read(path string) (*wire.FileResult, error) {
	f, fi, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	limit := o.req.Limit
	if limit <= 0 {
		limit = readLimit
	}
	offset := o.req.Offset
	if offset < 0 {
		offset = max(0, fi.Size()+offset)
	}
	if offset > 0 {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return nil, err
		}
	}
	res := &wire.FileResult{Entry: entryOf(shownPath(path), fi)}
	buf := make([]byte, 64<<10)
	for res.Bytes < limit {
		if err := o.aborted(); err != nil {
			return nil, err
		}
		n, err := f.Read(buf[:min(int64(len(buf)), limit-res.Bytes)])
		if _, werr := o.stdout.Write(buf[:n]); werr != nil {
			return nil, werr
		}
		res.Bytes += int64(n)
		if errors.Is(err, io.EOF) {
			return res, nil
		}
		if err != nil {
			return nil, err
		}
	}
	n, _ := f.Read(buf[:1])
	res.Truncated = n > 0
	return res, nil
}
