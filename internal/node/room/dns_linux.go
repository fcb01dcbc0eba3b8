package room

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

const (
	dnsPort = 53
	// What a question may have: a name is shorter than 256 bytes, and the options of
	// EDNS are few.
	maxQuestion = 4 << 10
	dnsIdle     = 10 * time.Second // of a connection
	maxPerConn  = 100              // questions
)

// Service types that a program asks for before it connects; the library has no
// names for them (RFC 9460).
const (
	typeSVCB  dnsmessage.Type = 64
	typeHTTPS dnsmessage.Type = 65
)

// Serve answers the questions of commands for names, on the addresses of the
// container's name servers.
func (n *Names) Serve() error {
	busy := make(chan struct{}, maxAsked)
	conns := make(chan struct{}, maxAsked)
	for _, a := range n.room.Resolvers {
		at := netip.AddrPortFrom(a, dnsPort)
		fd, err := Bind(at, unix.SOCK_DGRAM)
		if err == nil {
			go n.datagrams(os.NewFile(uintptr(fd), "dns"), busy)
			err = n.accept.listen(at, listener{free: conns, take: n.questions})
		}
		if err != nil {
			return fmt.Errorf("answer for the name server %s: %w", a, err)
		}
	}
	return nil
}

// datagrams answers questions over UDP. One that the judge has to be asked for does
// not keep the others; above a bound these fail at once.
func (n *Names) datagrams(f *os.File, busy chan struct{}) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, maxQuestion)
	for {
		var got int
		var from unix.Sockaddr
		var failed error
		err := conn.Read(func(fd uintptr) bool {
			got, from, failed = unix.Recvfrom(int(fd), buf, 0)
			return failed != unix.EAGAIN && failed != unix.EINTR
		})
		if err != nil {
			return
		}
		if failed != nil || from == nil {
			continue
		}
		reply := func(b []byte) {
			if b != nil {
				_ = conn.Control(func(fd uintptr) { _ = unix.Sendto(int(fd), b, unix.MSG_DONTWAIT, from) })
			}
		}
		q := parseQuestion(buf[:got])
		if q.settled(n) {
			reply(q.reply(n, n.known))
			continue
		}
		select {
		case busy <- struct{}{}:
			go func() {
				defer func() { <-busy }()
				reply(q.reply(n, n.ask))
			}()
		default:
			q.code = dnsmessage.RCodeServerFailure
			reply(q.reply(n, n.known))
		}
	}
}

// questions answers questions over TCP, one after the other.
func (n *Names) questions(c *Conn) {
	for range maxPerConn {
		_ = c.SetReadDeadline(time.Now().Add(dnsIdle))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		length := int(binary.BigEndian.Uint16(size[:]))
		if length > maxQuestion {
			return
		}
		b := make([]byte, length)
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		answer := parseQuestion(b).reply(n, n.ask)
		if answer == nil {
			return
		}
		_ = c.SetWriteDeadline(time.Now().Add(dnsIdle))
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

func (n *Names) ask(name string) (answer, bool) { return n.resolve(name), true }

// query is a question that was read.
type query struct {
	header dnsmessage.Header
	q      dnsmessage.Question
	code   dnsmessage.RCode // what is answered whoever asks; success is none
	silent bool             // it is no question
	name   string           // that the judge is asked for, or ""
}

// parseQuestion reads a message with exactly one question. What else stands in it
// does not count.
func parseQuestion(b []byte) *query {
	x := &query{}
	var p dnsmessage.Parser
	var err error
	if x.header, err = p.Start(b); err != nil || x.header.Response {
		x.silent = true
		return x
	}
	if x.header.OpCode != 0 {
		x.code = dnsmessage.RCodeNotImplemented
		return x
	}
	if x.q, err = p.Question(); err == nil {
		if _, err = p.Question(); errors.Is(err, dnsmessage.ErrSectionDone) {
			err = nil
		} else if err == nil {
			err = io.ErrUnexpectedEOF // another one
		}
	}
	if err != nil {
		x.code, x.q = dnsmessage.RCodeFormatError, dnsmessage.Question{}
		return x
	}
	if x.q.Class != dnsmessage.ClassINET {
		x.code = dnsmessage.RCodeRefused
		return x
	}
	switch x.q.Type {
	case dnsmessage.TypeA, dnsmessage.TypeAAAA, typeSVCB, typeHTTPS:
		var ok bool
		if x.name, ok = plain(x.q.Name.String()); !ok {
			x.code = dnsmessage.RCodeNameError
		}
	case dnsmessage.TypePTR:
	default:
		x.code = dnsmessage.RCodeRefused
	}
	return x
}

// settled tells whether the judge need not be asked.
func (x *query) settled(n *Names) bool {
	if x.silent || x.code != dnsmessage.RCodeSuccess || x.name == "" {
		return true
	}
	_, ok := n.known(x.name)
	return ok
}

// reply is the answer, or nil where there is none.
func (x *query) reply(n *Names, look func(name string) (answer, bool)) []byte {
	if x.silent {
		return nil
	}
	code, body := x.code, dnsmessage.ResourceBody(nil)
	switch {
	case code != dnsmessage.RCodeSuccess:
	case x.q.Type == dnsmessage.TypePTR:
		code, body = x.pointer(n)
	default:
		a, ok := look(x.name)
		switch {
		case !ok || a.failed:
			code = dnsmessage.RCodeServerFailure
		case !a.addr.IsValid():
			code = dnsmessage.RCodeNameError
		case x.q.Type == dnsmessage.TypeA:
			body = &dnsmessage.AResource{A: a.addr.As4()}
		}
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{
		ID: x.header.ID, Response: true, OpCode: x.header.OpCode, RecursionDesired: x.header.RecursionDesired, RecursionAvailable: true, RCode: code,
	}}
	if x.q.Name.Length > 0 {
		m.Questions = []dnsmessage.Question{x.q}
	}
	if body != nil {
		h := dnsmessage.ResourceHeader{Name: x.q.Name, Class: dnsmessage.ClassINET, TTL: uint32(answerLife / time.Second)}
		m.Answers = []dnsmessage.Resource{{Header: h, Body: body}}
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// pointer answers for the name of an address.
func (x *query) pointer(n *Names) (dnsmessage.RCode, dnsmessage.ResourceBody) {
	name := strings.ToLower(x.q.Name.String())
	reversed, v4 := strings.CutSuffix(name, ".in-addr.arpa.")
	if !v4 && !strings.HasSuffix(name, ".ip6.arpa.") {
		return dnsmessage.RCodeRefused, nil
	}
	labels := strings.Split(reversed, ".")
	if !v4 || len(labels) != 4 {
		return dnsmessage.RCodeNameError, nil
	}
	var b [4]byte
	for i, l := range labels {
		v, err := strconv.ParseUint(l, 10, 8)
		if err != nil {
			return dnsmessage.RCodeNameError, nil
		}
		b[3-i] = byte(v)
	}
	found, ok := n.NameOf(netip.AddrFrom4(b))
	if !ok {
		return dnsmessage.RCodeNameError, nil
	}
	to, err := dnsmessage.NewName(found + ".")
	if err != nil {
		return dnsmessage.RCodeServerFailure, nil
	}
	return dnsmessage.RCodeSuccess, &dnsmessage.PTRResource{PTR: to}
}
