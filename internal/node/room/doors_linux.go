package room

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Doors are what programs in a room with files of its own reach: names, which are asked
// for, and what stands here. The first process of the room takes the connections, and hands each
// to the process outside, which decides.
type Doors struct {
	Literals []Literal
	Ports    []Port // of its loopback
}

// Literal is addresses of a rule with its ports.
type Literal struct {
	Prefix netip.Prefix
	Ports  []uint16
}

// Port is one with a name, see [Conn.Door].
type Port struct {
	Number uint16
	Name   string
}

// maxOwnFlows bounds the connections of one room at once: those of all rooms of a container
// are open in one process.
const maxOwnFlows = 256

// open makes the doors of the room, in its first process, and proves that names resolve.
func (r *Room) open(d *Doors) (err error) {
	if r.Resolvers, err = resolvers(); err != nil {
		return err
	}
	if err := r.connect(nil); err != nil {
		return err
	}
	if err := unix.SetNonblock(doorsFD, true); err != nil {
		return err
	}
	out := &relay{f: os.NewFile(doorsFD, "doors"), waits: map[uint32]chan decided{}}
	go out.answers()
	n, err := r.Names(Judge{Ask: out.ask, Flow: out.flow})
	if err != nil {
		return err
	}
	n.flows = make(chan struct{}, maxOwnFlows)
	for _, l := range d.Literals {
		if err := n.Literal(l.Prefix, l.Ports); err != nil {
			return err
		}
	}
	for _, p := range d.Ports {
		err := n.accept.listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p.Number),
			listener{free: n.flows, take: func(c *Conn) { c.Door = p.Name; out.flow(c) }})
		if err != nil {
			return fmt.Errorf("listen on the loopback: %w", err)
		}
	}
	if err := n.Serve(); err != nil {
		return err
	}
	return n.Prove()
}

// wanted is what the first process of a room asks of the process outside. With a flow comes
// its descriptor.
type wanted struct {
	ID   uint32     `json:"id"`
	Ask  string     `json:"ask,omitempty"`
	Name string     `json:"name,omitempty"`
	Addr netip.Addr `json:"addr,omitzero"`
	Port uint16     `json:"port,omitempty"`
	Door string     `json:"door,omitempty"`
}

// decided is the answer: of a flow, that it has ended.
type decided struct {
	ID      uint32   `json:"id"`
	Allowed bool     `json:"allowed,omitempty"`
	Ports   []uint16 `json:"ports,omitempty"`
}

// relay is one side of the stream of a room's doors.
type relay struct {
	f *os.File

	mu    sync.Mutex
	last  uint32
	waits map[uint32]chan decided // nil once the other side has gone
}

// newRelay makes a stream: the side outside, and the descriptor of the one inside.
func newRelay() (r *relay, inside int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		if err = unix.SetNonblock(pair[0], true); err == nil {
			return &relay{f: os.NewFile(uintptr(pair[0]), "doors")}, pair[1], nil
		}
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
	}
	return nil, -1, fmt.Errorf("make a stream to the doors of the room: %w", err)
}

func (r *relay) close() { _ = r.f.Close() }

// send writes a message, with a descriptor if it has one.
func (r *relay) send(m any, with *os.File) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	to, err := r.f.SyscallConn()
	if err != nil {
		return err
	}
	write := func(rights []byte) error {
		failed := to.Write(func(fd uintptr) bool {
			err = unix.Sendmsg(int(fd), b, rights, nil, unix.MSG_NOSIGNAL)
			return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
		})
		return errors.Join(failed, err)
	}
	if with == nil {
		return write(nil)
	}
	from, err := with.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	failed := from.Control(func(fd uintptr) { sent = write(unix.UnixRights(int(fd))) })
	return errors.Join(failed, sent)
}

// receive reads a message, and the descriptor that came with it.
func (r *relay) receive(m any) (with *os.File, err error) {
	from, err := r.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	b, rights := make([]byte, maxWord), make([]byte, unix.CmsgSpace(4))
	var n, more int
	failed := from.Read(func(fd uintptr) bool {
		n, more, _, _, err = unix.Recvmsg(int(fd), b, rights, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if err = errors.Join(failed, err); err == nil && n == 0 {
		err = os.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	if all, cerr := unix.ParseSocketControlMessage(rights[:more]); cerr == nil && len(all) == 1 {
		if fds, cerr := unix.ParseUnixRights(&all[0]); cerr == nil && len(fds) == 1 {
			_ = unix.SetNonblock(fds[0], true)
			with = os.NewFile(uintptr(fds[0]), "connection")
		}
	}
	if err := json.Unmarshal(b[:n], m); err != nil {
		if with != nil {
			_ = with.Close()
		}
		return nil, err
	}
	return with, nil
}

// maxWord bounds a message: a name has 253 bytes, and a rule's ports are few.
const maxWord = 8 << 10

// put asks the other side and waits for its answer, which allows nothing where that has gone.
func (r *relay) put(m wanted, with *os.File) decided {
	answer := make(chan decided, 1)
	r.mu.Lock()
	if r.waits == nil {
		r.mu.Unlock()
		return decided{}
	}
	r.last++
	m.ID = r.last
	r.waits[m.ID] = answer
	r.mu.Unlock()
	if err := r.send(m, with); err != nil {
		r.mu.Lock()
		delete(r.waits, m.ID)
		r.mu.Unlock()
		return decided{}
	}
	if with != nil {
		_ = with.Close() // it ends when the other side closes it
	}
	return <-answer
}

// answers hands answers to who waits for them.
func (r *relay) answers() {
	for {
		var d decided
		with, err := r.receive(&d)
		if with != nil {
			_ = with.Close()
		}
		r.mu.Lock()
		if err != nil {
			for _, waits := range r.waits {
				close(waits)
			}
			r.waits = nil
			r.mu.Unlock()
			return
		}
		if waits := r.waits[d.ID]; waits != nil {
			delete(r.waits, d.ID)
			waits <- d
		}
		r.mu.Unlock()
	}
}

func (r *relay) ask(name string) (ports []uint16, allowed bool) {
	d := r.put(wanted{Ask: name}, nil)
	return d.Ports, d.Allowed
}

func (r *relay) flow(c *Conn) {
	r.put(wanted{Name: c.Name, Addr: c.Addr, Port: c.Port, Door: c.Door}, c.File)
}

// outside serves the side of the process outside until the other one has gone.
func (r *relay) outside(j Judge) {
	for {
		var m wanted
		with, err := r.receive(&m)
		if err != nil {
			return
		}
		go func() {
			d := decided{ID: m.ID}
			switch {
			case m.Ask != "":
				d.Ports, d.Allowed = j.Ask(m.Ask)
			case with != nil: // else there were no descriptors left
				j.Flow(&Conn{File: with, Name: m.Name, Addr: m.Addr, Port: m.Port, Door: m.Door})
			}
			if with != nil {
				_ = with.Close()
			}
			_ = r.send(d, nil)
		}()
	}
}
