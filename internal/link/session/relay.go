package session

import (
	"sync"
	"sync/atomic"

	"berth/internal/link/wire"
)

// Relay is a stream whose frames pass undecoded: what a keeper, to whom other
// clients talk, has in place of a [Process].
type Relay struct {
	s       *Session
	stream  uint32
	room    Room
	deliver func(t wire.Type, payload []byte)
	mu      sync.Mutex // held during deliver
	closed  atomic.Bool
}

// Relay sends the payload of a Start frame on a fresh stream and hands every
// later frame of that stream to deliver, in order. deliver is called by the
// goroutine that reads for the whole session, perhaps before Relay has
// returned: it must not block, and the payload is valid only until it returns.
// When the guest is gone, it is called once more, with type 0.
func (s *Session) Relay(start []byte, deliver func(t wire.Type, payload []byte)) (*Relay, error) {
	s.starting.Lock()
	defer s.starting.Unlock()
	r, err := register(s, func(stream uint32) *Relay { return &Relay{s: s, stream: stream, deliver: deliver} })
	if err != nil {
		return nil, err
	}
	if err := s.out.Forward(wire.Start, r.stream, start); err != nil {
		r.Close()
		return nil, startError(err)
	}
	return r, nil
}

// Send sends a frame on the stream: bytes of a channel, credit, a signal. The
// caller keeps to the flow control that the two ends agree on.
func (r *Relay) Send(t wire.Type, payload []byte) error {
	if err := r.s.err(); err != nil {
		return err
	}
	if err := r.s.out.Forward(t, r.stream, payload); err != nil {
		return startError(err)
	}
	return nil
}

// Close forgets the stream. It ends no command. No call of deliver begins after
// it; one that is under way, from which Close may be called, goes on.
func (r *Relay) Close() {
	r.closed.Store(true)
	r.s.streams.Remove(r.stream)
}

func (r *Relay) frame(f wire.Frame) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed.Load() {
		r.deliver(f.Type, f.Payload)
	}
	return nil
}

func (r *Relay) lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed.Swap(true) {
		r.deliver(0, nil)
	}
}
