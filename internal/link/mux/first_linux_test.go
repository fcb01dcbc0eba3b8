package mux

import (
	"bytes"
	"context"
	"os"
	"testing"

	"berth/internal/link/trunk"
	"berth/internal/link/wire"
	"berth/internal/sys/socket"
)

// TestFirstWord has a far side that opens the link, and answers a request for the keeper, only
// when it has read the client's first word: all make one way to it, and not one after the other.
func TestFirstWord(t *testing.T) {
	t.Parallel()
	pipes := make([]*os.File, 4)
	for i := 0; i < len(pipes); i += 2 {
		var err error
		if pipes[i], pipes[i+1], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	hangUp := func() {
		for _, p := range pipes {
			_ = p.Close()
		}
	}
	h := &holder{begun: make(chan struct{}), open: make(chan struct{}), ctx: t.Context(), waiting: map[chan string]bool{}}
	said := make(chan []byte, 1)
	far := trunk.New(wire.NewReader(pipes[0]), wire.NewWriter(pipes[3]), func(s *stream) {
		b := make([]byte, 4096)
		n, _ := s.Conn().Read(b)
		said <- b[:n]
		close(h.open)
		_ = s.Accept(opened())
	}, hangUp)
	near := trunk.New[request, answer](wire.NewReader(pipes[2]), wire.NewWriter(pipes[1]), nil, hangUp)
	h.mux = &Mux{t: near}
	close(h.begun)
	l := Link{Dir: t.TempDir(), ID: t.Name()}
	path, err := l.path()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 3)
	for _, run := range []func(){func() { far.Run(0) }, func() { near.Run(0) }, func() {
		if c, err := listener.Accept(); err == nil {
			h.serve(c)
			_ = c.Close()
		}
	}} {
		go func() {
			run()
			done <- struct{}{}
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	conn, rep, err := l.Join(ctx)
	if err != nil || !rep.Ready {
		t.Fatal(rep, err)
	}
	first := conn.(*client).Sent()
	if b := soon(t, "the first word", said); first == nil || !bytes.Equal(b, first.Bytes()) {
		t.Errorf("%q", b)
	}
	_ = conn.Close()
	near.Fail(nil)
	far.Fail(nil)
	for range cap(done) {
		<-done
	}
	listener.Remove()
	_ = listener.Close()
}
