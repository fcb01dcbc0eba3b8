package mux

import (
	"context"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"berth/internal/link/wire"
	"berth/internal/sys/run"
	"berth/jobs"
)

// pair joins two sides within this process.
func pair(t *testing.T) (near, far *trunk) {
	t.Helper()
	r1, w1, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	near = newTrunk(wire.NewReader(r1), wire.NewWriter(w2), true, func() { _, _ = r1.Close(), w2.Close() })
	far = newTrunk(wire.NewReader(r2), wire.NewWriter(w1), false, func() { _, _ = r2.Close(), w1.Close() })
	return near, far
}

// relayed starts commands whose input is passed on until stop is closed, and
// then kept open: what a killed srun leaves behind.
type relayed struct {
	r    *io.PipeReader
	w    *io.PipeWriter
	stop chan struct{}
}

func (l relayed) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	from, ok := c.Stdin.(*os.File)
	if !ok {
		return nil, os.ErrInvalid
	}
	// The caller closes its own.
	fd, err := dup(from)
	if err != nil {
		return nil, err
	}
	go func() {
		defer func() { _ = fd.Close() }()
		buf := make([]byte, 4096)
		for {
			n, err := fd.Read(buf)
			select {
			case <-l.stop:
				if err != nil {
					return
				}
				continue
			default:
			}
			if err != nil {
				_ = l.w.CloseWithError(err)
				return
			}
			if _, err := l.w.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	c.Stdin = l.r
	return run.Local{}.Start(ctx, c)
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
