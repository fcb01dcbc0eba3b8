package room

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// proveTime is how long a name server of the room may take to answer.
const proveTime = 5 * time.Second

// Prove asks each name server of the room, as a command would, for a name that is
// allowed for this alone. It is called before there are commands. What does not answer with its address would leave commands
// without names.
func (n *Names) Prove() error {
	name := "berth-proof-" + strings.ToLower(rand.Text()) + ".invalid"
	n.mu.Lock()
	want := n.grant(name, nil).addr
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.by, name)
		n.names = n.names[:len(n.names)-1] // no command has run that could know its address
	}()
	for _, server := range n.room.Resolvers {
		got, err := askFor(name, netip.AddrPortFrom(server, dnsPort))
		if err == nil && got != want {
			err = fmt.Errorf("another one answers: %s", got)
		}
		if err != nil {
			return fmt.Errorf("names do not resolve at %s: %w", server, err)
		}
	}
	return nil
}

// askFor asks a server over UDP for an address of a name.
func askFor(name string, at netip.AddrPort) (a netip.Addr, err error) {
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	packed, err := q.Pack()
	if err != nil {
		return a, err
	}
	family, to := unix.AF_INET, unix.Sockaddr(nil)
	if at.Addr().Is4() {
		to = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	} else {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return a, err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Connect(fd, to); err != nil {
		return a, err
	}
	if _, err := unix.Write(fd, packed); err != nil {
		return a, err
	}
	tv := unix.NsecToTimeval(proveTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return a, err
	}
	b := make([]byte, maxQuestion)
	size, err := retry(func() (int, error) { return unix.Read(fd, b) })
	if err != nil {
		return a, err
	}
	var m dnsmessage.Message
	if err := m.Unpack(b[:size]); err != nil {
		return a, err
	}
	for _, r := range m.Answers {
		if body, ok := r.Body.(*dnsmessage.AResource); ok {
			return netip.AddrFrom4(body.A), nil
		}
	}
	return a, errors.New("the name is not known there")
}
