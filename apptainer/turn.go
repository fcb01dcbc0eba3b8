package apptainer

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// takeTurn waits until no other process of this machine does what path stands
// for. It spares work and nothing relies on it: what is made is put in place so
// that the first one wins, and on a network file system the lock may mean
// nothing. waiting is called once when somebody else is at it.
func takeTurn(ctx context.Context, path string, waiting func()) (done func()) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return func() {}
	}
	done = func() { _ = f.Close() }
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return done
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return done
		case <-time.After(100 * time.Millisecond):
		}
	}
}
