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
	err := s.in.Serve(s.frame)
	if errors.Is(err, io.EOF) {
		s.shut(ErrGuestGone)
	} else {
		s.shut(fmt.Errorf("%w: %w", ErrGuestGone, err))
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
		s.streams.Refuse(errLeaving)
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
	case wire.Ask:
		return s.asked(f)
	case wire.Query, wire.Flow:
		return s.begun(f)
	default:
		if f.Stream&wire.OfGuest != 0 {
			return s.net.flows.Route(f, receiver.frame)
		}
		return s.streams.Route(f, receiver.frame)
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
	_, err = s.streams.Open(func(stream uint32) receiver {
		r = open(stream)
		return r
	})
	return r, err
}
