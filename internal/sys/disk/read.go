package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrNoRecord is that a file is none that can have been written as a record: no
// regular file, or too large.
var ErrNoRecord = errors.New("it is no record")

// OpenRegular opens the file at path to be read, if it is a regular one, and no
// link to one; else the error is [ErrNoRecord]. It never waits for whoever might
// write into a FIFO.
func OpenRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, fmt.Errorf("%w: it is a link", ErrNoRecord)
	case errors.Is(err, syscall.ENXIO):
		return nil, fmt.Errorf("%w: it is a socket", ErrNoRecord)
	case err != nil:
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%w: it is no regular file (%s)", ErrNoRecord, fi.Mode().Type())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ReadRegular reads the file at path as [OpenRegular] opens it. One of more than
// so many bytes is [ErrNoRecord], too.
func ReadRegular(path string, most int64) ([]byte, error) {
	f, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	tooLarge := func(n int64) error {
		return fmt.Errorf("%w: it has %d bytes, and a record has %d at most", ErrNoRecord, n, most)
	}
	if fi.Size() > most {
		return nil, tooLarge(fi.Size())
	}
	b := make([]byte, fi.Size(), fi.Size()+512)
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // cut off meanwhile
		return b[:n], nil
	}
	if err != nil {
		return nil, err
	}
	rest, err := io.ReadAll(io.LimitReader(f, most-int64(n)+1)) // written meanwhile
	if b = append(b, rest...); err == nil && int64(len(b)) > most {
		return nil, tooLarge(int64(len(b)))
	}
	return b, err
}
