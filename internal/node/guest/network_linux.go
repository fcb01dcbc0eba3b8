package guest

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"berth/internal/link/wire"
	"berth/internal/node/door"
	"berth/internal/node/room"
)

// network is what the guest does for the connections of commands: it decides nothing,
// and passes questions and bytes on to the client.
type network struct {
	s      *server
	room   *room.Room // nil where there is none
	noRoom error      // why, where one was asked for
	names  *room.Names
	env    []string    // by which programs find the proxy door
	ports  bool        // there are some for credentials
	doors  *room.Doors // of each room of a command's own; nil is none

	asking   chan struct{} // has one for each question of all rooms, which waits
	carrying chan struct{} // and for each connection

	offers atomic.Bool // the client may be able to take connections
	gave   atomic.Bool // and has taken one

	starting sync.Mutex // streams are numbered in the order of their first frames
	streams  wire.Streams[receiver]
}

// Bounds of all rooms together. They are below those of a session, which ends at its own:
// one task that has many would end what the others do.
const (
	mostAsked   = 192
	mostCarried = 6000
)

// enterRoom makes the room. Where the container has another network than a loopback,
// it makes none, and whoever has opened the container hears of the devices.
func enterRoom(sameUser bool) (*room.Room, int, error) {
	if found := devices("/proc/self/net/dev"); len(found) > 0 {
		return nil, 0, errors.New("the container has network devices: " + found[0])
	}
	return room.Enter(room.Options{SameUser: sameUser})
}

// confine begins the thread that starts commands.
func (s *server) confine(w *wire.NetworkWish) (*confiner, confined, error) {
	most := ^uint64(0)
	switch {
	case s.net.room != nil:
		most = s.net.room.CommandCapabilities(most)
	case w != nil && w.Visitor:
		most = room.VisitorCapabilities
	}
	return confine(most, where{room: most != ^uint64(0), isolated: onlyLoopback()})
}

// prepare makes what the client wishes for.
func (n *network) prepare(w *wire.NetworkWish) (had *wire.NetworkHad, err error) {
	had = &wire.NetworkHad{Room: n.room != nil}
	n.offers.Store(w.Take)
	if n.noRoom != nil {
		had.NoRoom = n.noRoom.Error()
		return had, n.noRoom
	}
	if n.room != nil {
		if err := n.answerNames(w.Literals); err != nil {
			return nil, err
		}
		if err := n.names.Prove(); err != nil {
			had.NoRoom = err.Error()
			return had, err
		}
	}
	if w.Door {
		d, err := door.Listen()
		if err != nil {
			return nil, err
		}
		n.env = d.Env(n.room != nil)
		go d.Serve(n.pass)
	}
	if n.ports = len(w.Credentials) > 0; n.ports {
		had.Ports, err = room.Loopback(len(w.Credentials), func(i int, c *room.Conn) {
			n.carry(wire.FlowMessage{Credential: w.Credentials[i]}, c, nil)
		})
		if err != nil {
			return nil, err
		}
	}
	if had.Rooms = w.Rooms; w.Rooms {
		n.doors, err = doorsOf(w, had.Ports)
	}
	return had, err
}

// doorsOf are those of each room of a command's own. ports are the credentials': nothing
// else has them in a new room.
func doorsOf(w *wire.NetworkWish, ports []uint16) (*room.Doors, error) {
	d := &room.Doors{}
	for _, l := range w.Literals {
		prefix, err := netip.ParsePrefix(l.Prefix)
		if err != nil {
			return nil, err
		}
		d.Literals = append(d.Literals, room.Literal{Prefix: prefix, Ports: l.Ports})
	}
	for i, p := range ports {
		d.Ports = append(d.Ports, room.Port{Number: p, Name: w.Credentials[i]})
	}
	return d, nil
}

// judge is what decides for a room: that of a command's own, by its stream, or, with 0, that of
// all others.
func (n *network) judge(of uint32) room.Judge {
	return room.Judge{Ask: n.ask, Flow: func(c *room.Conn) { n.flow(c, of) }}
}

// flow carries a connection to a name, an address or the port of a credential.
func (n *network) flow(c *room.Conn, of uint32) {
	m := wire.FlowMessage{Host: c.Name, Port: c.Port}
	switch {
	case c.Door != "":
		m = wire.FlowMessage{Credential: c.Door, Room: of}
	case m.Host == "":
		m.Host = c.Addr.String()
	}
	n.carry(m, c, nil)
}

// complete adds the variables of the door to those of commands. An image's own
// GIT_SSH_COMMAND stays.
func (n *network) complete(p *place) {
	for _, v := range n.env {
		if name, value, _ := strings.Cut(v, "="); name != "GIT_SSH_COMMAND" || p.get(name) == "" {
			p.set(name, value)
		}
	}
}

// pass carries a connection of the proxy door. Programs that resolve names themselves
// ask it for the addresses that names have in the room.
func (n *network) pass(r door.Request, c door.Conn) {
	m := wire.FlowMessage{Host: r.Host, Port: r.Port, Proxy: r.Proxy}
	if a, err := netip.ParseAddr(r.Host); err == nil && n.names != nil {
		if name, ok := n.names.NameOf(a); ok {
			m.Host = name
		}
	}
	var tell func(wire.FlowAnswer)
	if r.Answer != nil {
		tell = func(a wire.FlowAnswer) {
			d := door.Decision{Rule: a.Rule, Hint: a.Hint}
			switch {
			case a.NoWay:
				d.Verdict = door.Unavailable
			case a.Allowed:
				d.Verdict = door.Allowed
			}
			r.Answer(d)
		}
	}
	n.carry(m, c, tell)
}

// answerNames begins to answer for names, and to take connections.
func (n *network) answerNames(literals []wire.Literal) (err error) {
	if n.names, err = n.room.Names(n.judge(0)); err != nil {
		return err
	}
	for _, l := range literals {
		if err := n.addLiteral(l); err != nil {
			return err
		}
	}
	return n.names.Serve()
}

func (n *network) addLiteral(l wire.Literal) error {
	prefix, err := netip.ParsePrefix(l.Prefix)
	if err != nil {
		return err
	}
	return n.names.Literal(prefix, l.Ports)
}

// addLiterals takes up what the user has added while commands run.
func (n *network) addLiterals(all []wire.Literal) {
	if n.names == nil {
		return // the proxy door needs no routes
	}
	for _, l := range all {
		if err := n.addLiteral(l); err != nil {
			_, _ = fmt.Fprintf(n.s.stderr, "berth guest: %s is not reached without the proxy: %v\n", l.Prefix, err)
		}
	}
}

// open begins a stream with its first frame.
func open[R receiver](n *network, t wire.Type, m any, make func(stream uint32) R) (r R, stream uint32, err error) {
	n.starting.Lock()
	defer n.starting.Unlock()
	_, err = n.streams.Open(func(number uint32) receiver {
		stream, r = number, make(number)
		return r
	})
	if err == nil {
		if err = n.s.out.Message(t, stream, m); err != nil {
			n.streams.Remove(stream)
		}
	}
	return r, stream, err
}

// reply is the answer to come to a message, which has the message's type.
type reply[A any] struct {
	typ wire.Type
	c   chan A
}

func (q reply[A]) frame(f wire.Frame) error {
	var m A
	if f.Type != q.typ {
		return nil
	}
	if err := f.Decode(&m); err != nil {
		return err
	}
	select {
	case q.c <- m:
	default:
	}
	return nil
}

// question sends a message to the client and waits for the answer. The guest ends when its client does
// not answer.
func question[A any](n *network, t wire.Type, m any) (a A, err error) {
	q, stream, err := open(n, t, m, func(uint32) reply[A] { return reply[A]{t, make(chan A, 1)} })
	if err != nil {
		return a, err
	}
	defer n.streams.Remove(stream)
	return <-q.c, nil
}

// ask asks the client for a name.
func (n *network) ask(name string) (ports []uint16, allowed bool) {
	n.asking <- struct{}{}
	defer func() { <-n.asking }()
	m, err := question[wire.QueryAnswer](n, wire.Query, wire.QueryMessage{Name: name})
	return m.Ports, err == nil && m.Allowed
}

// conn is a connection that a command has made.
type conn interface {
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
	CloseWrite() error
	Close() error
}

// flow is one on its way to the client.
type flow struct {
	in      *wire.Inbox
	out     *wire.Sender
	tell    chan wire.FlowAnswer
	refused chan struct{}
	end     chan struct{}
	once    sync.Once
}

func newFlow(n *network, stream uint32) *flow {
	return &flow{
		in: wire.NewInbox(wire.FlowDown), out: wire.NewSender(n.s.out, wire.FlowUp, stream),
		tell: make(chan wire.FlowAnswer, 1), refused: make(chan struct{}, 1), end: make(chan struct{}),
	}
}

func (c *flow) frame(f wire.Frame) error {
	switch f.Type {
	case wire.FlowDown:
		return c.in.Put(f.Payload)
	case wire.Credit:
		return wire.Granted(f, c.out)
	case wire.FlowEnd:
		c.finish()
	case wire.FlowRefused:
		select {
		case c.refused <- struct{}{}:
		default:
		}
	case wire.Flow:
		var m wire.FlowAnswer
		if err := f.Decode(&m); err != nil {
			return err
		}
		select {
		case c.tell <- m:
		default:
		}
	}
	return nil
}

func (c *flow) finish() {
	c.once.Do(func() {
		c.in.Fail()
		c.out.Stop()
		close(c.end)
	})
}

// carry passes a connection on until both of its directions have ended, or the client
// ends it. tell hears of the decision before a byte passes; nil asks for none.
func (n *network) carry(m wire.FlowMessage, c conn, tell func(wire.FlowAnswer)) {
	select {
	case n.carrying <- struct{}{}:
		defer func() { <-n.carrying }()
	default:
		if tell != nil {
			tell(wire.FlowAnswer{Hint: "the guest cannot carry it: there are too many connections", NoWay: true})
		}
		return
	}
	m.Tell = tell != nil
	if of, ok := c.(*room.Conn); ok && n.offers.Load() {
		m.Descriptor = of.Descriptor()
	}
	f, stream, err := open(n, wire.Flow, m, func(stream uint32) *flow { return newFlow(n, stream) })
	if err != nil {
		if tell != nil {
			tell(wire.FlowAnswer{Hint: "the guest cannot carry it: " + err.Error(), NoWay: true})
		}
		return
	}
	defer n.streams.Remove(stream)
	if m.Descriptor > 0 && n.given(f) {
		return
	}
	if tell != nil {
		a := wire.FlowAnswer{Hint: "the connection was ended", NoWay: true}
		select {
		case a = <-f.tell:
		case <-f.end:
			select {
			case a = <-f.tell:
			default:
			}
		}
		tell(a)
	}
	up := make(chan struct{})
	go func() {
		defer close(up)
		b := buffers.Get().(*[bufferSize]byte)
		defer buffers.Put(b)
		for {
			got, err := c.Read(b[:])
			if got > 0 {
				if _, werr := f.out.Write(b[:got]); werr != nil {
					return
				}
			}
			if err != nil {
				_ = f.out.Close()
				return
			}
		}
	}()
	err = f.in.Drain(c, n.s.out.Credits(wire.FlowDown, stream))
	select {
	case <-f.end: // by the client: what it had sent before was written
	default:
		if err == nil {
			_ = c.CloseWrite()
			select {
			case <-up:
			case <-f.end:
			}
		}
	}
	f.finish()
	_ = c.Close() // ends a read
	<-up
	_ = n.s.out.Message(wire.FlowEnd, stream, nil)
}

// given waits until the client has done with a connection that was offered, or has not
// taken it. The client ends it by itself, whoever else has it open.
func (n *network) given(f *flow) bool {
	select {
	case <-f.refused:
		if !n.gave.Load() {
			n.offers.Store(false) // it never can
		}
		return false
	case <-f.end:
		n.gave.Store(true)
		return true
	}
}

const bufferSize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}
