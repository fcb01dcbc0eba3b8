package session_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"berth/internal/link/session"
	"berth/internal/link/wire"
)

// offering is a guest in this process, which offers connections.
type offering struct {
	t    *testing.T
	s    *session.Session
	in   *wire.Reader
	out  *wire.Writer
	last uint32
}

func offers(t *testing.T, by session.Network) *offering {
	t.Helper()
	clientR, guestW := io.Pipe()
	guestR, clientW := io.Pipe()
	g := &offering{t: t, in: wire.NewReader(guestR), out: wire.NewWriter(guestW), last: wire.OfGuest}
	greeted := make(chan error, 1)
	go func() {
		greeted <- wire.Greet(g.in, g.out, func(h wire.ClientHello, err error) (wire.GuestHello, error) {
			if !h.Network.Take {
				t.Errorf("%+v", h.Network)
			}
			return wire.GuestHello{Version: wire.Version, Network: &wire.NetworkHad{Room: true}}, err
		})
	}()
	s, err := session.Open(t.Context(), clientR, clientW, session.Options{Network: by, NetworkWish: wire.NetworkWish{Take: true}})
	if err = errors.Join(err, <-greeted); err != nil {
		t.Fatal(err)
	}
	g.s = s
	t.Cleanup(func() { _ = s.Close() })
	return g
}

// offer begins a flow.
func (g *offering) offer(descriptor int) {
	g.t.Helper()
	g.last++
	if err := g.out.Message(wire.Flow, g.last, wire.FlowMessage{Host: "a.example", Port: 443, Descriptor: descriptor}); err != nil {
		g.t.Fatal(err)
	}
}

// next is the next frame, which has to be of this type.
func (g *offering) next(want wire.Type) wire.Frame {
	g.t.Helper()
	f, err := g.in.Next()
	if err != nil || f.Type != want || f.Stream != g.last {
		g.t.Fatalf("%d of %d (%v), not %d of %d", f.Type, f.Stream, err, want, g.last)
	}
	return f
}

// connected is a connection of a command's, from both sides, with the descriptor of the guest's.
func connected(t *testing.T) (command, guest *net.TCPConn, descriptor int) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	a, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	command, guest = a.(*net.TCPConn), b.(*net.TCPConn)
	t.Cleanup(func() { _, _ = command.Close(), guest.Close() })
	return command, guest, descriptorOf(t, guest)
}

func descriptorOf(t *testing.T, c syscall.Conn) (fd int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = int(n) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// A connection that a guest offers is taken from it: its bytes come in no frame, each
// direction ends alone, and it is open as long as the flow is.
func TestTake(t *testing.T) {
	g := offers(t, &echo{})
	g.s.TakeFrom(os.Getpid())
	command, _, fd := connected(t) // the guest's own stays open
	g.offer(fd)
	go func() {
		_, _ = command.Write(make([]byte, 1<<20))
		_, _ = command.Write([]byte("end"))
		_ = command.CloseWrite()
	}()
	got, err := io.ReadAll(command)
	if err != nil || len(got) != 1<<20+3 || string(got[1<<20:]) != "end" {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	g.next(wire.FlowEnd)
}

// What is no connection is not taken, nor from a guest whose process is not known, and the
// bytes come in frames.
func TestNotTaken(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	datagrams, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = datagrams.Close() }()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = syscall.Close(pair[0]), syscall.Close(pair[1]) }()
	g := offers(t, &echo{})
	_, _, fd := connected(t)
	for i, descriptor := range []int{fd, descriptorOf(t, r), descriptorOf(t, datagrams), pair[0], 1 << 20} {
		g.offer(descriptor)
		g.next(wire.FlowRefused)
		g.s.TakeFrom(os.Getpid())
		if err := g.out.Data(wire.FlowUp, g.last, []byte("word")); err != nil {
			t.Fatal(err)
		}
		if f := g.next(wire.FlowDown); string(f.Payload) != "word" {
			t.Errorf("%d: %q", i, f.Payload)
		}
		if err := g.out.Message(wire.FlowEnd, g.last, nil); err != nil {
			t.Fatal(err)
		}
		for f, err := g.in.Next(); f.Type != wire.FlowEnd; f, err = g.in.Next() {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What was taken ends when the guest says so, and with the session.
func TestTakenEnds(t *testing.T) {
	g := offers(t, &echo{})
	g.s.TakeFrom(os.Getpid())
	for _, end := range []func(){
		func() { _ = g.out.Message(wire.FlowEnd, g.last, nil) },
		func() { _ = g.s.Close() },
	} {
		command, _, fd := connected(t)
		g.offer(fd)
		if _, err := command.Write([]byte("1")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(command, make([]byte, 1)); err != nil { // it was taken
			t.Fatal(err)
		}
		end()
		if _, err := command.Read(make([]byte, 1)); err == nil {
			t.Error("it goes on")
		}
		if f, err := g.in.Next(); err == nil && f.Type != wire.FlowEnd {
			t.Errorf("a frame of type %d", f.Type)
		}
	}
}
