package transfer

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// direction is which way splice moves.
type direction bool

const (
	toPipe   direction = true
	fromPipe direction = false
)

// splice moves up to n bytes between a pipe and a file inside the kernel, where
// out of a file nothing is copied at all, and returns how many. It stops at any
// trouble and at the end: whoever moves the rest in the usual way meets the
// same and tells it. To close the pipe wakes it.
//
// A buffer's worth at a time, as much as in the usual way: with all that a pipe
// holds at once, its two ends would only take turns.
func (m *mover) splice(pipe, file *os.File, n int64, d direction) (moved int64) {
	pc, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	fc, err := file.SyscallConn()
	if err != nil {
		return 0
	}
	polled := pc.Read
	if d == toPipe {
		polled = pc.Write
	}
	for moved < n && m.ctx.Err() == nil {
		var k int64
		var serr error
		err := polled(func(p uintptr) bool {
			cerr := fc.Control(func(f uintptr) {
				from, to := int(p), int(f)
				if d == toPipe {
					from, to = to, from
				}
				for {
					k, serr = unix.Splice(from, nil, to, nil, int(min(n-moved, bufferSize)), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
					if !errors.Is(serr, unix.EINTR) {
						return
					}
				}
			})
			return cerr != nil || !errors.Is(serr, unix.EAGAIN)
		})
		if err != nil || serr != nil || k <= 0 {
			return moved
		}
		moved += k
		m.count(k)
	}
	return moved
}
