package session

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// splice moves what comes out of a pipe into a file without copying it through
// this process (splice(2)). done is false when these two do not allow that: what
// is left is to be copied then.
func splice(to, from *os.File) (done bool, err error) {
	in, err := from.SyscallConn()
	if err != nil {
		return false, nil
	}
	out, err := to.SyscallConn()
	if err != nil {
		return false, nil
	}
	var total int64
	for {
		var n int64
		var serr error
		full := false
		// The reader is polled; when it is the writer that is full, that is
		// waited for, and then it is tried again.
		err = in.Read(func(rfd uintptr) bool {
			cerr := out.Control(func(wfd uintptr) {
				for {
					n, serr = unix.Splice(int(rfd), nil, int(wfd), nil, pipeBuffer, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
					if !errors.Is(serr, unix.EINTR) {
						return
					}
				}
			})
			if cerr != nil {
				serr = cerr
				return true
			}
			if !errors.Is(serr, unix.EAGAIN) {
				return true
			}
			waiting, ierr := unix.IoctlGetInt(int(rfd), unix.TIOCINQ)
			full = ierr == nil && waiting > 0
			return full
		})
		switch {
		case err != nil:
			return true, err
		case full:
			if err := writable(to); err != nil {
				return true, err
			}
		case serr != nil && total == 0 && errors.Is(serr, unix.EINVAL):
			return false, nil
		case errors.Is(serr, unix.EPIPE):
			// Who reads this process's output has gone: an ordinary write to it ends
			// the process as every other is ended, by SIGPIPE (os/signal).
			return false, nil
		case serr != nil:
			return true, os.NewSyscallError("splice", serr)
		case n == 0:
			return true, nil
		default:
			total += n
		}
	}
}

// writable waits until a file takes more.
func writable(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var perr error
	err = c.Control(func(fd uintptr) {
		for {
			_, perr = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
			if !errors.Is(perr, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, perr)
}
