package session

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"berth/internal/guest/wire"

	"golang.org/x/sys/unix"
)

// pipe is a named pipe to or from a guest on this machine. Through frames, every
// byte would be copied and sealed at each process in between.
type pipe struct {
	path string
	used atomic.Bool // the guest has it open, too

	mu     sync.Mutex
	file   *os.File
	closed bool
}

// newPipe makes one and opens it for reading, or for both; nil is that there is
// no place for it.
func (s *Session) newPipe(flag int) (p *pipe, inside string) {
	if s.pipes == "" {
		return nil, ""
	}
	name := rand.Text()
	path := filepath.Join(s.pipes, name)
	if unix.Mkfifo(path, 0o600) != nil {
		return nil, ""
	}
	fd, err := unix.Open(path, flag|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		_ = os.Remove(path)
		return nil, ""
	}
	return &pipe{path: path, file: os.NewFile(uintptr(fd), path)}, filepath.Join(s.pipesInside, name)
}

// close removes it; it wakes whoever reads or writes.
func (p *pipe) close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		_ = os.Remove(p.path)
		_ = p.file.Close()
	}
}

// receive takes what comes out of the pipe, to its end.
func (p *pipe) receive(w io.Writer) error {
	_ = os.Remove(p.path) // both ends are open: nobody else comes in
	if f := fileOf(w); f != nil {
		if done, err := splice(f, p.file); done && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return wire.TakePast(w, p.file, make([]byte, pipeBuffer))
}

// end tells that the guest has closed its end: others inside may have the pipe
// open, and are not waited for.
func (p *pipe) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		wire.EndPast(p.file)
	}
}

// fileOf returns the file that a writer is, or nil.
func fileOf(w io.Writer) *os.File {
	switch v := w.(type) {
	case *os.File:
		return v
	case *sink:
		return v.file()
	}
	return nil
}

// send puts what r holds into the pipe. This end is closed for reading first:
// whoever takes the bytes may go away.
func (p *pipe) send(r io.Reader) error {
	fd, err := unix.Open(p.path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_ = os.Remove(p.path)
	w := os.NewFile(uintptr(fd), p.path)
	p.mu.Lock()
	_ = p.file.Close()
	p.file = w
	closed := p.closed
	p.mu.Unlock()
	if closed {
		_ = w.Close()
		return os.ErrClosed
	}
	_, err = io.CopyBuffer(onlyWriter{w}, onlyReader{r}, make([]byte, pipeBuffer))
	p.close()
	return err
}

const pipeBuffer = 512 << 10

// onlyReader and onlyWriter hide what io.Copy would use instead of its buffer.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)
