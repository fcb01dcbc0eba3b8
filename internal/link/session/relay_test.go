//go:build linux

package session_test

import (
	"bytes"
	"encoding/json"
	"sync"
	"testing"

	"berth/internal/link/session"
	"berth/internal/link/wire"
)

// frames collects what a relayed stream brings.
type frames struct {
	mu    sync.Mutex
	types []wire.Type
	out   bytes.Buffer
}

func (f *frames) deliver(t wire.Type, payload []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.types = append(f.types, t)
	if t == wire.Stdout {
		f.out.Write(payload)
	}
}

func (f *frames) count(t wire.Type) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.types {
		if x == t {
			n++
		}
	}
	return n
}

func TestRelay(t *testing.T) {
	p := open(t, session.Options{})
	start, err := json.Marshal(wire.StartMessage{Shell: "read x; echo got $x; sleep 300", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	var got frames
	r, err := p.s.Relay(start, got.deliver)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Send(wire.Stdin, []byte("it\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "output", func() bool { return got.count(wire.Stdout) > 0 })
	if err := r.Send(wire.Terminate, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end", func() bool { return got.count(wire.Exit) == 1 && got.count(wire.Stderr) == 1 })
	if got.out.String() != "got it\n" || got.count(wire.Started) != 1 {
		t.Errorf("%q %v", got.out.String(), got.types)
	}
	if _, out, _ := p.run(shell("echo beside")); out != "beside\n" {
		t.Errorf("%q", out)
	}
	if err := r.Send(wire.Stdin, make([]byte, wire.MaxData+1)); err == nil {
		t.Error("a frame that breaks the protocol was sent")
	}
	// A closed relay hears nothing more; an open one hears the end of all.
	r.Close()
	before := got.count(0)
	var other frames
	if _, err := p.s.Relay(start, other.deliver); err != nil {
		t.Fatal(err)
	}
	if err := p.s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss", func() bool { return other.count(0) == 1 })
	if got.count(0) != before {
		t.Error("a closed relay was called")
	}
	if _, err := p.s.Relay(start, other.deliver); err == nil {
		t.Error("a relay over a closed session")
	}
}
