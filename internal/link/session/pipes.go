package session

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"berth/internal/link/wire"

	"golang.org/x/sys/unix"
)

// Pipes makes pipes that carry much output and input past the frames: through
// those, every byte is copied and sealed at each process in between. One that is
// an io.Closer is closed when its session ends.
type Pipes interface {
	// Make makes one, for bytes that go into the environment or come out of
	// it. Nil is that there is none: the bytes go in frames like all others.
	Make(into bool) Pipe
}

// Pipe carries bytes of one channel of one request. Send or Receive is called
// when the guest has opened it, End and Close at any time.
type Pipe interface {
	// Inside is the path of a named pipe that the guest is to open.
	Inside() string
	// Receive writes to w what comes out, to its end.
	Receive(w io.Writer) error
	// Send puts in what r holds, and ends it.
	Send(r io.Reader) error
	// End tells that the guest has closed its end: Receive returns when it has
	// taken what is there. Others inside who have opened it are not waited for.
	End()
	// Close removes it, and wakes Receive and Send. It may be called more than
	// once.
	Close()
}

// pipe is one that a request has; nil is none.
type pipe struct {
	Pipe
	used atomic.Bool // the guest has it open, too
}

func (s *Session) newPipe(into bool) (p *pipe, inside string) {
	if s.pipes == nil {
		return nil, ""
	}
	made := s.pipes.Make(into)
	if made == nil {
		return nil, ""
	}
	return &pipe{Pipe: made}, made.Inside()
}

func (p *pipe) end() {
	if p != nil {
		p.End()
	}
}

func (p *pipe) close() {
	if p != nil {
		p.Close()
	}
}

// LocalPipes makes named pipes in here, a private directory of this machine
// which the guest sees as inside; "" is none.
func LocalPipes(here, inside string) Pipes {
	if here == "" {
		return nil
	}
	return localPipes{here, inside}
}

type localPipes struct{ here, inside string }

// Make makes one and opens it for reading, or for both.
func (l localPipes) Make(into bool) Pipe {
	flag := unix.O_RDONLY
	if into {
		flag = unix.O_RDWR
	}
	name := rand.Text()
	path := filepath.Join(l.here, name)
	if unix.Mkfifo(path, 0o600) != nil {
		return nil
	}
	fd, err := unix.Open(path, flag|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		_ = os.Remove(path)
		return nil
	}
	return &fifo{path: path, inside: filepath.Join(l.inside, name), file: os.NewFile(uintptr(fd), path)}
}

// fifo is a named pipe to or from a guest on this machine.
type fifo struct {
	path, inside string

	mu     sync.Mutex
	file   *os.File
	closed bool
}

func (p *fifo) Inside() string { return p.inside }

func (p *fifo) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		_ = os.Remove(p.path)
		_ = p.file.Close()
	}
}

func (p *fifo) Receive(w io.Writer) error {
	_ = os.Remove(p.path) // both ends are open: no other process comes in
	if s, ok := w.(*sink); ok {
		if a := s.arrival(); a != nil {
			return a.take(wire.NewPast(p.file))
		}
	}
	if f := fileOf(w); f != nil {
		if done, err := splice(f, p.file); done && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return wire.TakePast(w, p.file, make([]byte, pipeBuffer))
}

func (p *fifo) End() {
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

// Send puts in what r holds. This end is closed for reading first: whoever
// takes the bytes may go away.
func (p *fifo) Send(r io.Reader) error {
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
	defer p.Close()
	if s, ok := r.(*source); ok {
		if done, err := s.give(w); done {
			return err
		}
	}
	_, err = io.CopyBuffer(onlyWriter{w}, onlyReader{r}, make([]byte, pipeBuffer))
	return err
}

const pipeBuffer = 512 << 10

// onlyReader and onlyWriter hide what io.Copy would use instead of its buffer.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)
