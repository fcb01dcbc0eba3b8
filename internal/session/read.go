package session

import (
	"errors"
	"fmt"
	"io"
	"time"

	"berth/internal/guest/wire"
)

// read serves the guest's frames until the stream ends. It never writes and
// never waits for a receiver, see package wire.
func (s *Session) read() {
	for {
		f, err := s.in.Next()
		if err == nil {
			err = s.frame(f)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				s.shut(ErrGuestGone)
			} else {
				s.shut(fmt.Errorf("%w: %w", ErrGuestGone, err))
			}
			return
		}
	}
}

// frame serves one frame. An error ends the conversation.
func (s *Session) frame(f wire.Frame) error {
	switch f.Type {
	case wire.Pong:
		s.pong.Store(time.Now().UnixNano())
	case wire.Ended:
		var m wire.EndedMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		s.mu.Lock()
		answer := s.ends[f.Stream]
		s.mu.Unlock()
		if answer != nil {
			select {
			case answer <- min(max(m.Left, 0), maxLeft):
			default:
			}
		}
	default:
		s.mu.Lock()
		p := s.processes[f.Stream]
		s.mu.Unlock()
		if p != nil {
			return p.frame(f)
		}
		// A type or a stream that a newer guest knows.
	}
	return nil
}

// register makes a process with the next stream number.
func (s *Session) register(stdout, stderr io.Writer) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, s.broken
	}
	s.last++
	p := newProcess(s, s.last, stdout, stderr)
	s.processes[s.last] = p
	return p, nil
}

// forget removes a process from which nothing more is expected.
func (s *Session) forget(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, p.stream)
}
