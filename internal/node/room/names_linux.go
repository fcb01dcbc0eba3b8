package room

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a room.
const (
	maxNames = 10_000 // that have addresses
	maxPorts = 32     // of one name
	maxFlows = 1024   // connections at once
	maxAsked = 64     // questions for names at once

	answerLife = 30 * time.Second // of an answer that says yes: rules are added to a task that runs
	denialLife = time.Second      // of one that says no: programs ask for both kinds of addresses at once
)

// Judge is who decides on names, and takes the connections to them.
type Judge struct {
	// Ask tells whether a name may be reached, and on which ports. It may take its time, and is
	// called for many names at once, never twice at once for one.
	Ask func(name string) (ports []uint16, allowed bool)
	// Flow is given each connection, in a goroutine of its own, and has it until
	// it returns.
	Flow func(*Conn)
}

// Names are the addresses of a room's names. A name has one, as long as the room
// lives, and no other name has it afterwards.
type Names struct {
	judge  Judge
	room   *Room
	accept *acceptor
	flows  chan struct{}
	now    func() time.Time

	mu      sync.Mutex
	by      map[string]*host
	names   []string // by address
	asked   map[string]*question
	denials map[string]time.Time // until when they hold
}

// host is a name that is allowed.
type host struct {
	addr  netip.Addr
	ports []uint16 // that listen
	until time.Time
}

type question struct {
	done   chan struct{}
	answer answer
}

// answer is what is known of a name.
type answer struct {
	addr   netip.Addr // none where the name is denied
	failed bool       // it could not be asked, or there is no more room for it
}

// Names begins the table of names of a room.
func (r *Room) Names(j Judge) (*Names, error) {
	a, err := newAcceptor()
	if err != nil {
		return nil, fmt.Errorf("wait for connections: %w", err)
	}
	return &Names{
		judge: j, room: r, accept: a, flows: make(chan struct{}, maxFlows), now: time.Now,
		by: map[string]*host{}, asked: map[string]*question{}, denials: map[string]time.Time{},
	}, nil
}

// Literal takes the connections to the addresses of a rule, on its ports. Those of a
// network come by listeners on all addresses, which take their ports from commands and
// from the addresses of names: it has to be called before a name is asked for. What is
// no address of the network or of a name is closed.
func (n *Names) Literal(to netip.Prefix, ports []uint16) error {
	to = to.Masked()
	if err := n.room.Route(to); err != nil {
		return err
	}
	at, take := to.Addr(), n.judge.Flow
	if !to.IsSingleIP() {
		at = netip.IPv4Unspecified()
		if to.Addr().Is6() {
			at = netip.IPv6Unspecified()
		}
		take = func(c *Conn) {
			var named bool
			if c.Name, named = n.NameOf(c.Addr); named || to.Contains(c.Addr) {
				n.judge.Flow(c)
			}
		}
	}
	for _, p := range ports {
		err := n.accept.listen(netip.AddrPortFrom(at, p), listener{free: n.flows, take: take})
		if err != nil && !errors.Is(err, unix.EADDRINUSE) { // a command's server has it: that answers
			return fmt.Errorf("listen on %s: %w", netip.AddrPortFrom(at, p), err)
		}
	}
	return nil
}

// resolve returns the address of a name, which is a plain one. It asks the judge
// where it does not know.
func (n *Names) resolve(name string) answer {
	a, q, first := n.begin(name)
	switch {
	case q == nil:
		return a
	case !first:
		<-q.done
		return q.answer
	}
	ports, allowed := n.judge.Ask(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.asked, name)
	if q.answer = (answer{}); allowed {
		q.answer = n.grant(name, ports)
	} else {
		n.deny(name)
	}
	close(q.done)
	return q.answer
}

// known returns what needs no question.
func (n *Names) known(name string) (a answer, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.look(name)
}

func (n *Names) look(name string) (a answer, ok bool) {
	now := n.now()
	if h := n.by[name]; h != nil && now.Before(h.until) {
		return answer{addr: h.addr}, true
	}
	return answer{}, now.Before(n.denials[name])
}

// begin returns a question that is to be put, or is under way, where the answer is not known.
func (n *Names) begin(name string) (a answer, q *question, first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.look(name); ok {
		return a, nil, false
	}
	if q = n.asked[name]; q != nil {
		return a, q, false
	}
	q = &question{done: make(chan struct{})}
	n.asked[name] = q
	return a, q, true
}

// grant gives a name its address, with listeners on ports, or on those that are new.
func (n *Names) grant(name string, ports []uint16) answer {
	h := n.by[name]
	if h == nil {
		if len(n.names) >= maxNames {
			n.deny(name)
			return answer{}
		}
		h = &host{addr: fake(len(n.names))}
		n.names = append(n.names, name)
		n.by[name] = h
	}
	failed := false
	for _, p := range ports {
		if slices.Contains(h.ports, p) || len(h.ports) >= maxPorts {
			continue
		}
		err := n.accept.listen(netip.AddrPortFrom(h.addr, p), listener{name: name, free: n.flows, take: n.judge.Flow})
		switch {
		case err == nil:
			h.ports = append(h.ports, p)
		case errors.Is(err, unix.EADDRINUSE): // a command's server on all addresses has the port, and answers itself alone
		default:
			failed = true
		}
	}
	if failed {
		return answer{failed: true}
	}
	h.until = n.now().Add(answerLife)
	return answer{addr: h.addr}
}

func (n *Names) deny(name string) {
	now := n.now()
	if len(n.denials) >= maxNames {
		clear(n.denials)
	}
	n.denials[name] = now.Add(denialLife)
}

// fake is the address with a number. The first of the network is no name's.
func fake(i int) netip.Addr {
	b := Fakes.Addr().As4()
	i++
	return netip.AddrFrom4([4]byte{b[0], b[1] + byte(i>>16), byte(i >> 8), byte(i)})
}

// NameOf is the name that has an address.
func (n *Names) NameOf(a netip.Addr) (string, bool) {
	if !a.Is4() || !Fakes.Contains(a) {
		return "", false
	}
	b, first := a.As4(), Fakes.Addr().As4()
	i := (int(b[1]-first[1])<<16 | int(b[2])<<8 | int(b[3])) - 1
	n.mu.Lock()
	defer n.mu.Unlock()
	if i < 0 || i >= len(n.names) {
		return "", false
	}
	return n.names[i], true
}

// plain returns a name of the network as the judge is asked for it, in lower case
// and without a final dot; there is none where programs would not agree on what it is.
func plain(name string) (string, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" || len(name) > 253 {
		return "", false
	}
	length := 0
	for i := range len(name) {
		c := name[i]
		if length++; c == '.' {
			if length == 1 {
				return "", false
			}
			length = 0
		} else if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return "", false
		}
	}
	return name, length > 0
}
