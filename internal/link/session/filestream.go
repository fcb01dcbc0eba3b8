package session

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// source is what goes in. When it cannot be read to its end, the operation is
// ended: its input must not end as if it were whole.
type source struct {
	r      io.Reader
	begun  chan struct{}
	p      *Process // nil when it never began
	mu     sync.Mutex
	broken error
}

func newSource(r io.Reader) *source { return &source{r: r, begun: make(chan struct{})} }

func (s *source) begin(p *Process) {
	s.p = p
	close(s.begun)
}

func (s *source) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	s.fail(err)
	return 0, err
}

// give writes everything into a pipe, if the reader can do that itself.
func (s *source) give(w *os.File) (done bool, err error) {
	d, ok := s.r.(*departure)
	if !ok {
		return false, nil
	}
	err = d.give(w)
	// A pipe that has lost its reader is not the reader's fault.
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
		s.fail(err)
	}
	return true, err
}

// fail ends the operation before its input ends.
func (s *source) fail(err error) {
	s.mu.Lock()
	s.broken = err
	s.mu.Unlock()
	<-s.begun
	if s.p != nil {
		_ = s.p.Terminate(0)
		<-s.p.exited
	}
}

// sink is the destination of output, until the output is not wanted any more.
type sink struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	if s.w == nil {
		return len(b), nil
	}
	var n int
	n, s.err = s.w.Write(b)
	return n, s.err
}

// file returns the writer if it is a file.
func (s *sink) file() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.w.(*os.File); ok && s.err == nil {
		return f
	}
	return nil
}

// arrival returns the writer if it takes pipes.
func (s *sink) arrival() *arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.w.(*arrival); ok && s.err == nil {
		return a
	}
	return nil
}

// shut returns when the writer is not used any more.
func (s *sink) shut(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = why
	}
}

func (s *sink) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
