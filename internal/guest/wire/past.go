package wire

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// mostInPipe is what a named pipe can hold here: somebody who goes on writing
// into it does not keep it from ending.
const mostInPipe = 1 << 20

// TakePast writes to w what comes out of a named pipe that carries a channel's
// bytes past its frames, until all who have it open for writing have closed it,
// or [EndPast] was called.
func TakePast(w io.Writer, pipe *os.File, buf []byte) error {
	// The wrappers hide what io.Copy would use instead of the buffer.
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{pipe}, buf)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	rc, err := pipe.SyscallConn()
	if err != nil {
		return err
	}
	for left := mostInPipe; left > 0; {
		n, rerr := 0, error(nil)
		err := rc.Control(func(fd uintptr) {
			for {
				if n, rerr = unix.Read(int(fd), buf[:min(left, len(buf))]); !errors.Is(rerr, unix.EINTR) {
					return
				}
			}
		})
		if n <= 0 || err != nil {
			return nil // it is empty, or was closed
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// EndPast makes TakePast return when it has taken what is in the pipe. It is
// called when the channel's end has come: its sender has closed the pipe before
// that. Whoever else has opened the pipe is not waited for.
func EndPast(pipe *os.File) { _ = pipe.SetReadDeadline(time.Unix(1, 0)) }
