package judge

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pipes through which the kernel moves bytes between sockets. There are few, because a
// user may have only so many in memory (pipe(7)), and a reader that does not read keeps one;
// who finds none copies.
const (
	maxPipes  = 8
	pipeSize  = 1 << 20 // what a user may make one take: half of it costs twice the time
	leastPipe = 64 << 10
)

var pipes = func() chan *pipe {
	all := make(chan *pipe, maxPipes)
	for range maxPipes {
		all <- nil // is made when it is needed
	}
	return all
}()

type pipe struct{ r, w int }

func newPipe() (*pipe, error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	p := &pipe{fd[0], fd[1]}
	_, _ = unix.FcntlInt(uintptr(p.r), unix.F_SETPIPE_SZ, pipeSize)
	if size, err := unix.FcntlInt(uintptr(p.r), unix.F_GETPIPE_SZ, 0); err != nil || size < leastPipe {
		p.close() // this user has too much in pipes already
		return nil, errors.Join(err, errors.New("the pipe is too small"))
	}
	return p, nil
}

func (p *pipe) close() { _, _ = unix.Close(p.r), unix.Close(p.w) }

// mover moves what one socket has into another.
type mover struct{ from, to syscall.RawConn }

// newMover returns one that moves nothing where these are no two sockets.
func newMover(from io.Reader, to any) *mover {
	a, ok := from.(syscall.Conn)
	b, also := to.(syscall.Conn)
	if !ok || !also {
		return &mover{}
	}
	m := &mover{}
	var err, failed error
	m.from, err = a.SyscallConn()
	m.to, failed = b.SyscallConn()
	if err != nil || failed != nil {
		return &mover{}
	}
	return m
}

// move moves what has come, once; nothing at all is the end. moved is false where it has to
// be copied, or nothing is there yet. Whatever it has taken from the one it has given to the
// other, or both are useless.
func (m *mover) move(sends func(n int) error) (n int, moved bool, err error) {
	if m.from == nil {
		return 0, false, nil
	}
	var p *pipe
	select {
	case p = <-pipes:
	default:
		return 0, false, nil
	}
	empty := true
	defer func() {
		if p != nil && !empty {
			p.close()
			p = nil
		}
		pipes <- p
	}()
	if p == nil {
		if p, err = newPipe(); err != nil {
			return 0, false, nil
		}
	}
	got, err := splice(m.from.Read, false, func(fd uintptr) (int64, error) {
		return unix.Splice(int(fd), nil, p.w, nil, pipeSize, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	})
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, false, nil
	case errors.Is(err, unix.EINVAL):
		m.from = nil
		return 0, false, nil
	case err != nil || got == 0:
		return 0, true, err
	}
	empty = false
	if err := sends(got); err != nil {
		return 0, true, err
	}
	for n < got {
		part, err := splice(m.to.Write, true, func(fd uintptr) (int64, error) {
			return unix.Splice(p.r, nil, int(fd), nil, got-n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		})
		if n += part; err != nil {
			return n, true, err
		}
	}
	empty = true
	return n, true, nil
}

// splice is one call, when the socket is ready for it, or at once.
func splice(ready func(func(fd uintptr) bool) error, waits bool, call func(fd uintptr) (int64, error)) (int, error) {
	var n int64
	var err error
	failed := ready(func(fd uintptr) bool {
		for {
			if n, err = call(fd); !errors.Is(err, unix.EINTR) {
				return !waits || !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	if failed != nil {
		err = failed
	}
	return int(max(n, 0)), err
}

// readable waits until a socket has something to read, or has ended.
func readable(c syscall.RawConn) error {
	return c.Read(func(fd uintptr) bool {
		all := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
		n, err := unix.Poll(all, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}
