package mux

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"berth/internal/sys/run"
	"berth/jobs"
)

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
