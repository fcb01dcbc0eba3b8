package wire

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// mostInPipe is what a named pipe can hold here: a process that goes on writing
// into it does not keep it from ending.
const mostInPipe = 1 << 20

// Past reads what comes out of a named pipe that carries a channel's bytes past
// its frames, until all who have it open for writing have closed it, or
// [EndPast] was called.
type Past struct {
	pipe  *os.File
	told  bool // EndPast was called
	left  int  // of what was in the pipe then
	ended bool
}

// NewPast returns a reader of a pipe, which stays the caller's to close.
func NewPast(pipe *os.File) *Past { return &Past{pipe: pipe, left: mostInPipe} }

// Pipe returns the pipe: who moves bytes out of it until that fails, and reads
// the rest here, misses none.
func (p *Past) Pipe() *os.File { return p.pipe }

// Ended tells whether Read has come to the end.
func (p *Past) Ended() bool { return p.ended }

// Read reads from the pipe.
func (p *Past) Read(b []byte) (n int, err error) {
	defer func() { p.ended = p.ended || errors.Is(err, io.EOF) }()
	if !p.told {
		if n, err = p.pipe.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		p.told = true
	}
	rc, err := p.pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	var rerr error
	err = rc.Control(func(fd uintptr) {
		for {
			if n, rerr = unix.Read(int(fd), b[:min(p.left, len(b))]); !errors.Is(rerr, unix.EINTR) {
				return
			}
		}
	})
	if n <= 0 || err != nil {
		return 0, io.EOF // it is empty, or was closed
	}
	p.left -= n
	return n, nil
}

// TakePast writes to w all that [Past] reads from a pipe.
func TakePast(w io.Writer, pipe *os.File, buf []byte) error {
	// The wrapper hides what io.Copy would use instead of the buffer.
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, NewPast(pipe), buf)
	return err
}

// EndPast makes a [Past] end when what is in the pipe has been read. It is
// called when the channel's end has come: its sender has closed the pipe before
// that. Whoever else has opened the pipe is not waited for.
func EndPast(pipe *os.File) { _ = pipe.SetReadDeadline(time.Unix(1, 0)) }
