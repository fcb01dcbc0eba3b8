package session

import (
	"errors"
	"fmt"
	"io"

	"berth/internal/link/wire"
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
		s.silent.Store(0)
	case wire.Quit:
		s.mu.Lock()
		s.leaving, s.taken = true, f.Stream
		s.mu.Unlock()
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
	case wire.Environ:
		var m wire.EnvironMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		select {
		case s.environ <- m:
		default:
		}
	default:
		s.mu.Lock()
		r := s.streams[f.Stream]
		s.mu.Unlock()
		if r != nil {
			return r.frame(f)
		}
		// A type or a stream that a newer guest knows.
	}
	return nil
}

// receiver is who takes the frames of a stream.
type receiver interface {
	frame(f wire.Frame) error // must not block; an error ends the conversation
	lose()                    // the guest is gone
}

// errLeaving says that the other side reads nothing more.
var errLeaving = fmt.Errorf("%w: it is just ending", ErrGuestGone)

// unread tells whether the other side has left without having read a stream.
func (s *Session) unread(stream uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving && stream > s.taken
}

// register gives the next stream number to what open makes for it.
func register[R receiver](s *Session, open func(stream uint32) R) (r R, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return r, s.broken
	}
	if s.leaving {
		return r, errLeaving
	}
	s.last++
	r = open(s.last)
	s.streams[s.last] = r
	return r, nil
}

// forget removes a stream from which nothing more is expected.
func (s *Session) forget(stream uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, stream)
}
