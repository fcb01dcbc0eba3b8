package supervise

import (
	"context"
	"sync"
	"time"
)

// Stop holds the first reason to end what is supervised; later ones change
// nothing. Its zero value has none.
type Stop[R any] struct {
	mu   sync.Mutex
	why  *R
	done chan struct{} // made when it is first needed
}

// Set gives a reason, and reports whether it is the first.
func (s *Stop[R]) Set(why R) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != nil {
		return false
	}
	s.why = &why
	close(s.channel())
	return true
}

// Why returns the reason, or nil.
func (s *Stop[R]) Why() *R {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// Done is closed when there is a reason.
func (s *Stop[R]) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channel()
}

// channel returns the channel. The caller holds the lock.
func (s *Stop[R]) channel() chan struct{} {
	if s.done == nil {
		s.done = make(chan struct{})
	}
	return s.done
}

// Context returns a context that also ends with the first reason.
func (s *Stop[R]) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		select {
		case <-s.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Await returns when ended is closed. When stop is closed before, it calls end,
// which asks for the end and returns how long that may take, and then, when nothing
// has come of it, force.
func Await(ended, stop <-chan struct{}, end func() time.Duration, force func()) {
	select {
	case <-ended:
		return
	case <-stop:
	}
	select {
	case <-ended:
	case <-time.After(end()):
		force()
		<-ended
	}
}
