package mux

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"berth/internal/sys/socket"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// lock makes sure that one holder at a time has a socket's name. It is beside
// the socket, on this machine's own disk.
type lock struct {
	f    *os.File
	path string
	once sync.Once
	free chan struct{} // closed when it is given up
}

// tryLock takes it; nil is that another process has it.
func tryLock(path string) (*lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "take the lock of the connection", Err: err}
		}
		err = flock(f)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			_ = f.Close()
			return nil, nil
		case err != nil:
			_ = f.Close()
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "lock " + path, Err: err}
		}
		// Whoever had it before may have removed the file meanwhile.
		mine, err := f.Stat()
		if err == nil {
			if now, serr := os.Lstat(path); serr == nil && os.SameFile(mine, now) {
				return &lock{f: f, path: path, free: make(chan struct{})}, nil
			}
		}
		_ = f.Close()
	}
}

func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// release gives it up.
func (l *lock) release() {
	l.once.Do(func() {
		_ = os.Remove(l.path)
		_ = l.f.Close()
		close(l.free)
	})
}

// lookAgain is how often a holder that came second looks what became of the
// first.
const lookAgain = 5 * time.Millisecond

// take takes the place of the holder. nil is that another one has it, whose
// link is open; what that said was passed on.
func (h *holder) take(stdout *os.File) (*lock, error) {
	for {
		l, err := tryLock(h.path + ".lock")
		if err != nil || l != nil {
			return l, err
		}
		if done, err := h.other(stdout); done {
			return nil, err
		}
		select {
		case <-h.ctx.Done():
			return nil, context.Cause(h.ctx)
		case <-time.After(lookAgain):
		}
	}
}

// other asks the holder that was first.
func (h *holder) other(stdout *os.File) (done bool, err error) {
	f, err := socket.Dial(h.ctx, h.path)
	if err != nil {
		return false, nil
	}
	c := &client{File: f}
	defer func() { _ = f.Close() }()
	a, err := c.ask(request{Kind: kindWait}, func(text string) { _, _ = stdout.Write(line(progress(text))) })
	switch {
	case errors.Is(err, errNoHolder):
		return false, nil
	case err != nil:
		return true, err
	}
	_, _ = stdout.Write(line(a))
	return true, nil
}
