package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/link/wire"
)

// ErrGuestGone says that the stream to the guest broke before the answer came:
// what happened to the command is not known.
var ErrGuestGone = errors.New("the guest is gone")

// ErrAgain says that a request did not get through: a keeper has refused it
// because its environment was just ending, or the stream broke before the whole
// of it was sent. Nothing has begun: it may be sent again, over a new
// connection.
var ErrAgain = errors.New("the request came too late")

// NotWritableError says that the place of a guest cannot be written, see
// [Options].
type NotWritableError struct{ Why string }

// Error is what the guest has found.
func (e *NotWritableError) Error() string { return e.Why }

// CgroupError says that cgroups of the machine can be written in a guest's place,
// see [Options].
type CgroupError struct{ At string }

// Error says where.
func (e *CgroupError) Error() string { return "cgroups can be written in the container: " + e.At }

// NoRoomError says that a guest could not make the room that it was to serve in.
type NoRoomError struct{ Why string }

// Error is what the guest has found.
func (e *NoRoomError) Error() string { return "no room can be made below the container: " + e.Why }

// Session is a conversation with one guest. It is safe for concurrent use.
type Session struct {
	r     io.Reader
	w     io.WriteCloser
	in    *wire.Reader
	out   *wire.Writer
	guest Guest

	pipes Pipes // nil is none
	net   network
	ask   func(context.Context, wire.AskMessage) wire.AskAnswer // nil is that none is expected
	asks  chan struct{}                                         // under way

	pings    chan struct{}
	silent   atomic.Int64 // pings, see Unanswered
	gone     chan struct{}
	closing  chan struct{}
	shutting sync.Once

	streams  wire.Streams[receiver]
	starting sync.Mutex // streams are numbered in the order of their first frames
	mu       sync.Mutex
	broken   error
	leaving  bool                // the other side has said that it leaves
	taken    uint32              // and that it has read no stream after this one
	ends     map[uint32]chan int // answers to End
	environ  chan wire.EnvironMessage
}

// Guest returns what the guest said of itself.
func (s *Session) Guest() Guest { return s.guest }

// Ping tells the guest that its owner still stands. It never blocks: when an
// earlier ping is still on its way, that one counts. The error says that the
// guest is gone.
func (s *Session) Ping() error {
	if err := s.err(); err != nil {
		return err
	}
	s.silent.Add(1)
	select {
	case s.pings <- struct{}{}:
	default:
	}
	return nil
}

// Unanswered returns how many calls of Ping in a row had no answer. They are few
// where a guest lives, which answers whatever hangs around it, and they are counted,
// because a clock also runs while this process is stopped.
func (s *Session) Unanswered() int { return int(s.silent.Load()) }

// sendPings sends what Ping asks for; a write may block for as long as the
// guest does not read.
func (s *Session) sendPings() {
	for n := int64(1); ; n++ {
		select {
		case <-s.closing:
			return
		case <-s.pings:
			if s.out.Message(wire.Ping, 0, wire.PingMessage{Number: n}) != nil {
				return
			}
		}
	}
}

// End ends all commands and all that they left behind: TERM to each main
// process' group, SIGKILL to everything that is left when it has ended or
// after grace. The session stays usable. left counts what could not be killed.
func (s *Session) End(ctx context.Context, grace time.Duration) (left int, err error) {
	answer := make(chan int, 1)
	s.mu.Lock()
	stream := uint32(len(s.ends) + 1)
	for s.ends[stream] != nil {
		stream++
	}
	s.ends[stream] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.ends, stream)
		s.mu.Unlock()
	}()
	if err := s.send(wire.End, stream, wire.EndMessage{Grace: grace}); err != nil {
		return 0, err
	}
	select {
	case left = <-answer:
		return left, nil
	case <-s.gone:
		return 0, s.err()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Quit ends everything as End does, without grace, and waits until the guest
// has left or ctx ends. The session is closed after it.
func (s *Session) Quit(ctx context.Context) error {
	defer func() { _ = s.Close() }()
	go func() { _ = s.send(wire.Quit, 0, wire.EndMessage{}) }() // may block; Close ends that
	select {
	case <-s.gone: // it has left, or had been gone before
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the guest did not leave: %w", context.Cause(ctx))
	}
}

// Close closes the stream. The guest, when it is alive, ends everything and
// leaves. It may be called more than once.
func (s *Session) Close() error {
	s.shut(fmt.Errorf("%w: the session was closed", ErrGuestGone))
	return nil
}

// Gone is closed when the guest has left or the stream has broken.
func (s *Session) Gone() <-chan struct{} { return s.gone }

// err returns why the session cannot be used any more, or nil.
func (s *Session) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// send sends a message, unless the guest is gone.
func (s *Session) send(t wire.Type, stream uint32, v any) error {
	if err := s.err(); err != nil {
		return err
	}
	if err := s.out.Message(t, stream, v); err != nil {
		return fmt.Errorf("%w: %w", ErrGuestGone, err)
	}
	return nil
}

// shut ends the session; the first reason counts.
func (s *Session) shut(why error) {
	s.shutting.Do(func() {
		s.mu.Lock()
		s.broken = why
		s.mu.Unlock()
		waiting := append(s.streams.Close(why), s.net.close(why)...)
		close(s.closing)
		_ = s.w.Close()
		closeReader(s.r)
		for _, r := range waiting {
			r.lose()
		}
		if c, ok := s.pipes.(io.Closer); ok {
			_ = c.Close()
		}
		close(s.gone)
	})
}

func closeReader(r io.Reader) {
	if c, ok := r.(io.Closer); ok {
		_ = c.Close()
	}
}
