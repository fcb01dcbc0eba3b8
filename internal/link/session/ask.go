package session

import (
	"errors"

	"berth/internal/link/wire"
)

// mostAsks is what a guest may have under way of them: its own bound is lower.
const mostAsks = 64

// asked has a request of a program inside answered.
func (s *Session) asked(f wire.Frame) error {
	if s.ask == nil || f.Stream&wire.OfGuest == 0 {
		return errors.New("the guest passes on requests that it was not told to")
	}
	var m wire.AskMessage
	if err := f.Decode(&m); err != nil {
		return err
	}
	select {
	case s.asks <- struct{}{}:
	default:
		return errors.New("the guest passes on more requests at once than a guest does")
	}
	stream := f.Stream
	go func() {
		defer func() { <-s.asks }()
		_ = s.out.Message(wire.Ask, stream, s.ask(s.net.ctx, m))
	}()
	return nil
}
