package judge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// sockets are a connection of the kernel's.
func sockets(t *testing.T) (near, far *net.TCPConn) {
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
	near, far = a.(*net.TCPConn), b.(*net.TCPConn)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// between has a judge with a rule for one address carry a flow between two sockets, and
// returns the program's end, the server's, and what waits for the end.
func between(t *testing.T, w *world) (program, server *net.TCPConn, wait func() Entry) {
	t.Helper()
	near, server := sockets(t)
	program, client := sockets(t)
	j := w.judge("10.1.2.3:4000")
	j.o.Dial = func(context.Context, string, netip.AddrPort) (net.Conn, error) { return near, nil }
	result := make(chan Entry, 1)
	go func() { result <- j.Flow(t.Context(), Request{Host: "10.1.2.3", Port: 4000}, client) }()
	return program, server, func() Entry { return <-result }
}

// Much data passes whole between two sockets, in both directions at once, is counted, and
// either direction ends alone.
func TestMove(t *testing.T) {
	w := newWorld(t)
	program, server, wait := between(t, w)
	random := rand.NewChaCha8([32]byte{1})
	up, down := make([]byte, 5<<20+1), make([]byte, 9<<20+7)
	_, _ = random.Read(up)
	_, _ = random.Read(down)
	var all sync.WaitGroup
	send := func(c *net.TCPConn, b []byte) {
		all.Go(func() {
			if _, err := c.Write(b); err != nil {
				t.Error(err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Error(err)
			}
		})
	}
	receive := func(c *net.TCPConn, want []byte) {
		all.Go(func() {
			if got, err := io.ReadAll(c); err != nil || sha256.Sum256(got) != sha256.Sum256(want) {
				t.Errorf("%d bytes of %d came, or others: %v", len(got), len(want), err)
			}
		})
	}
	send(program, up)
	receive(server, up)
	receive(program, down)
	send(server, down)
	all.Wait()
	if e := wait(); e.Up != int64(len(up)) || e.Down != int64(len(down)) || e.Reason != "" {
		t.Errorf("%+v", e)
	}
}

// A bound on bytes ends what is moved, too.
func TestMoveLimit(t *testing.T) {
	w := newWorld(t)
	w.limits.Down = 3 << 20
	program, server, wait := between(t, w)
	go func() { _, _ = server.Write(make([]byte, 8<<20)) }()
	got, _ := io.Copy(io.Discard, program)
	if e := wait(); e.Down != got || got > w.limits.Down || !strings.HasPrefix(e.Reason, "limit: bytes down") {
		t.Errorf("%d bytes came: %+v", got, e)
	}
}

// Programs that do not read keep the pipes, and no more of them are made; others go on
// without, and have one when those have ended.
func TestMovePipes(t *testing.T) {
	var ends []func() Entry
	var stuck []*net.TCPConn
	for range maxPipes + 1 {
		w := newWorld(t)
		program, server, wait := between(t, w)
		go func() {
			for b := make([]byte, 1<<20); ; {
				if _, err := server.Write(b); err != nil {
					return
				}
			}
		}()
		if _, err := io.ReadFull(program, make([]byte, 2*muchData)); err != nil {
			t.Fatal(err)
		}
		stuck, ends = append(stuck, program), append(ends, wait)
	}
	for len(pipes) > 0 { // the last ones are about to take theirs
		runtime.Gosched()
	}
	w := newWorld(t)
	program, server, wait := between(t, w)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = server.Write(want)
		_ = server.CloseWrite()
	}()
	if got, err := io.ReadAll(program); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	_ = program.Close()
	if e := wait(); e.Down != int64(len(want)) {
		t.Errorf("%+v", e)
	}
	for i, c := range stuck {
		_ = c.SetLinger(0)
		_ = c.Close()
		ends[i]()
	}
	if len(pipes) != maxPipes {
		t.Errorf("%d pipes of %d came back", len(pipes), maxPipes)
	}
}

// patient is a connection whose Read must not be called before there is something.
type patient struct {
	*end
	t  *testing.T
	in chan []byte
	b  []byte
}

func (p *patient) Await() error {
	if len(p.b) == 0 {
		p.b = <-p.in
	}
	return nil
}

func (p *patient) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		select {
		case p.b = <-p.in:
		default:
			p.t.Error("a buffer waits for a program that says nothing")
			return 0, errors.New("nothing is there")
		}
	}
	if string(p.b) == "end" {
		return 0, io.EOF
	}
	n := copy(b, p.b)
	p.b = p.b[n:]
	return n, nil
}

// A flow on which nothing is said holds no buffer.
func TestNoBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		said := make(chan string)
		w.serve["93.184.216.34:22"] = func(c net.Conn) {
			b := make([]byte, 16)
			for {
				n, err := c.Read(b)
				if err != nil {
					_ = c.Close()
					return
				}
				said <- string(b[:n])
			}
		}
		j := w.judge("a.example:22")
		in, out := pair()
		p := &patient{end: out, t: t, in: make(chan []byte, 1)}
		p.in <- []byte("first")
		result := make(chan Entry, 1)
		go func() { result <- j.Flow(t.Context(), Request{Host: "a.example", Port: 22}, p) }()
		for _, want := range []string{"first", "second"} {
			if got := <-said; got != want {
				t.Errorf("%q", got)
			}
			synctest.Wait()
			p.in <- []byte(map[string]string{"first": "second", "second": "end"}[want])
		}
		_, _ = io.ReadAll(in)
		if e := <-result; e.Up != 11 {
			t.Errorf("%+v", e)
		}
		w.running.Wait()
	})
}
