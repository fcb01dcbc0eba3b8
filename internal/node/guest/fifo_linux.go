package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// fifo is a path that the shell opens as a stream of a command. The same one
// serves as long as no other process holds it.
type fifo struct {
	path string
	busy *atomic.Bool // until what the command wrote is out
}

// stream opens one of the command's streams: the guest's read end, and a write
// end without which the reader would be at the end before the shell has opened
// it.
func (w *warm) stream(i int) (r, hold *os.File, err error) {
	f := &w.fifos[i]
	fd := -1
	if f.path != "" && !f.busy.Load() {
		if fd, err = reading(f.path); err == nil {
			// The end of the file says that there is no other writer. A process
			// that was left behind with it must not write into this command.
			var b [1]byte
			if n, rerr := unix.Read(fd, b[:]); n != 0 || rerr != nil {
				_ = unix.Close(fd)
				fd = -1
			}
		}
	}
	if fd < 0 {
		_ = os.Remove(f.path)
		f.busy = new(atomic.Bool)
		if f.path, err = w.mkfifo(); err != nil {
			return nil, nil, err
		}
		if fd, err = reading(f.path); err != nil {
			return nil, nil, fmt.Errorf("open a FIFO: %w", err)
		}
	}
	if r, hold, err = held(fd, f.path); err == nil {
		f.busy.Store(true)
	}
	return r, hold, err
}

// held opens the write end of a FIFO, too, of which fd is the read end.
func held(fd int, path string) (r, hold *os.File, err error) {
	wfd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		_ = unix.Close(fd)
		return nil, nil, fmt.Errorf("open a FIFO: %w", err)
	}
	return os.NewFile(uintptr(fd), path), os.NewFile(uintptr(wfd), path), nil
}

// reading opens a FIFO without waiting for a writer.
func reading(path string) (fd int, err error) {
	return unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
}

// mkfifo makes a FIFO that no process has open. The task may have removed the
// directory; the shell does not need it.
func (w *warm) mkfifo() (path string, err error) {
	for range 2 {
		w.made++
		path = filepath.Join(w.dir, strconv.Itoa(w.made))
		if err = unix.Mkfifo(path, 0o600); !errors.Is(err, unix.ENOENT) {
			break
		}
		if w.dir, err = w.files.subdir(); err != nil {
			return "", err
		}
	}
	if err != nil {
		return "", fmt.Errorf("make a FIFO: %w", err)
	}
	return path, nil
}
