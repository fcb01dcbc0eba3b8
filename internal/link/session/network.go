package session

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"berth/internal/link/wire"
)

// A Network decides on what commands want to reach. It is called for many of them at
// once.
type Network interface {
	// Query tells whether a name may be reached.
	Query(ctx context.Context, name string) wire.QueryAnswer
	// Flow has a connection until it returns, and closes it.
	Flow(ctx context.Context, m wire.FlowMessage, f *Flow)
}

// Most of what a guest may have under way: its own bounds are lower.
const (
	mostFlows   = 8192
	mostQueries = 256
	mostHost    = 300 // bytes of a name
)

// errMany is of a guest that is none of ours, or in a task's hands.
var errMany = errors.New("the guest asks for more connections and names at once than a guest does")

// network is what a session has under way for its [Network].
type network struct {
	by      Network
	ctx     context.Context
	stop    context.CancelCauseFunc
	flows   wire.Streams[receiver]
	queries chan struct{}
	guest   atomic.Pointer[os.File] // its process, see [Session.TakeFrom]
}

func (n *network) open(by Network) {
	n.by, n.flows.Most, n.queries = by, mostFlows, make(chan struct{}, mostQueries)
	n.ctx, n.stop = context.WithCancelCause(context.Background())
}

func (n *network) close(why error) []receiver {
	n.stop(why)
	if guest := n.guest.Swap(nil); guest != nil {
		_ = guest.Close()
	}
	return n.flows.Close(why)
}

// begun serves the first frame of a stream that the guest begins.
func (s *Session) begun(f wire.Frame) error {
	n := &s.net
	if n.by == nil || f.Stream&wire.OfGuest == 0 {
		return errors.New("the guest speaks of a network that it was not told of")
	}
	stream := f.Stream
	if f.Type == wire.Query {
		var m wire.QueryMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		if len(m.Name) > mostHost {
			return errMany
		}
		select {
		case n.queries <- struct{}{}:
			go func() {
				defer func() { <-n.queries }()
				_ = s.out.Message(wire.Query, stream, n.by.Query(n.ctx, m.Name))
			}()
		default:
			return errMany
		}
		return nil
	}
	var m wire.FlowMessage
	if err := f.Decode(&m); err != nil {
		return err
	}
	if len(m.Host) > mostHost || len(m.Credential) > mostHost {
		return errMany
	}
	if err := n.flows.Next(stream); err != nil {
		return err
	}
	of, ended := s.roomOf(m.Room) // here: the end of its command is read after it
	c := &Flow{s: s, stream: stream, room: of, in: wire.NewInbox(wire.FlowUp), out: wire.NewSender(s.out, wire.FlowDown, stream)}
	n.flows.Put(stream, c)
	go func() {
		defer func() { _ = c.Close() }()
		if ended {
			return
		}
		if m.Descriptor > 0 && !c.take(m.Descriptor) {
			_ = s.out.Message(wire.FlowRefused, stream, nil)
		}
		n.by.Flow(n.ctx, m, c)
	}()
	return nil
}

// Room is that of one command. It keeps what is to be known of all connections from there.
type Room struct {
	once sync.Once
	kept any
}

// Keep returns what the first call of it has made.
func (r *Room) Keep(first func() any) any {
	r.once.Do(func() { r.kept = first() })
	return r.kept
}

// roomOf is the room of the command with a stream; nil is of 0, which is none. ended is that there
// is no such command any more, whose room has lost what it kept.
func (s *Session) roomOf(stream uint32) (of *Room, ended bool) {
	if stream == 0 {
		return nil, false
	}
	switch r, _ := s.streams.Of(stream); r := r.(type) {
	case *Relay:
		return &r.room, false
	case *Process:
		return &r.room, false
	}
	return nil, true
}

// AddLiterals has addresses reached in the guest's room that were not there at the
// beginning. Whether they are allowed is asked for each connection.
func (s *Session) AddLiterals(all []wire.Literal) error {
	return s.send(wire.Literals, 0, wire.LiteralsMessage{Literals: all})
}

// Flow is a connection of a command's, as a stream.
type Flow struct {
	s       *Session
	stream  uint32
	room    *Room // nil is none
	in      *wire.Inbox
	out     *wire.Sender
	ending  sync.Once // of what goes to the command
	closing sync.Once

	mu    sync.Mutex
	taken *connection // nil where the bytes come in frames; set before the first of them
	lost  bool
}

// Room is that of the command which has made the connection, where the guest has said it; nil is
// that it is not known.
func (c *Flow) Room() *Room { return c.room }

// take gets the connection itself from the guest: its bytes are then copied once less on
// each side, and neither sealed nor passed on by the guest.
func (c *Flow) take(descriptor int) bool {
	taken, err := c.s.net.take(descriptor)
	if err != nil {
		return false
	}
	c.mu.Lock()
	lost := c.lost
	c.taken = taken
	c.mu.Unlock()
	if lost {
		taken.close()
	}
	return true
}

// Read reads what the command has written.
func (c *Flow) Read(p []byte) (int, error) {
	if c.taken != nil {
		return c.taken.Read(p)
	}
	return c.in.Read(p, c.s.out.Credits(wire.FlowUp, c.stream))
}

// Await waits until Read does not: who has many connections needs no buffer for each of
// them until then.
func (c *Flow) Await() error {
	if c.taken != nil {
		return c.taken.await()
	}
	c.in.Await()
	return nil
}

// SyscallConn returns the connection where it was taken from the guest.
func (c *Flow) SyscallConn() (syscall.RawConn, error) {
	if c.taken == nil {
		return nil, errors.ErrUnsupported
	}
	return c.taken.raw, nil
}

// Write sends bytes to the command.
func (c *Flow) Write(p []byte) (int, error) {
	if c.taken != nil {
		return c.taken.Write(p)
	}
	return c.out.Write(p)
}

// CloseWrite tells the command that no more comes; reading goes on.
func (c *Flow) CloseWrite() (err error) {
	err = io.ErrClosedPipe
	c.ending.Do(func() {
		if c.taken != nil {
			err = c.taken.closeWrite()
		} else {
			err = c.out.Close()
		}
	})
	return err
}

// Close ends the connection in both directions. What waits for it returns.
func (c *Flow) Close() error {
	c.closing.Do(func() {
		c.lose()
		_ = c.s.out.Message(wire.FlowEnd, c.stream, nil)
		c.s.net.flows.Remove(c.stream) // until then it counts
	})
	return nil
}

// Tell answers a flow whose message asks for it.
func (c *Flow) Tell(a wire.FlowAnswer) { _ = c.s.out.Message(wire.Flow, c.stream, a) }

func (c *Flow) frame(f wire.Frame) error {
	switch f.Type {
	case wire.FlowUp:
		return c.in.Put(f.Payload)
	case wire.Credit:
		return wire.Granted(f, c.out)
	case wire.FlowEnd:
		c.lose()
	}
	return nil
}

func (c *Flow) lose() {
	c.in.Fail()
	c.out.Stop()
	c.mu.Lock()
	taken := c.taken
	c.lost = true
	c.mu.Unlock()
	if taken != nil {
		taken.close()
	}
}

// clampNetwork checks what a guest says of the network against what it was asked for.
func clampNetwork(had *wire.NetworkHad, wish *wire.NetworkWish) (*wire.NetworkHad, error) {
	switch {
	case wish == nil || wish.Visitor:
		return nil, nil
	case had == nil:
		return nil, errors.New("the guest has prepared nothing for the network of its commands")
	}
	if len(had.Ports) != len(wish.Credentials) || slices.Contains(had.Ports, 0) {
		return nil, errors.New("the guest does not listen for each credential")
	}
	return &wire.NetworkHad{Room: had.Room, Rooms: had.Rooms && wish.Rooms, Ports: had.Ports}, nil
}
