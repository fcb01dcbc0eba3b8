package keeper

import (
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"
)

// abandonGrace is between TERM and KILL for commands whose client is gone.
const abandonGrace = 2 * time.Second

// codeFailed is the exit code of berth's own failures.
const codeFailed = 125

// relay is a command of a client that runs in the guest. Its frames pass
// through; what the keeper reads of them are credits and the end.
type relay struct {
	c      *client
	stream uint32
	guest  atomic.Pointer[session.Relay] // nil until it was handed over
	flow   *flow
	begun  time.Time
	late   atomic.Bool // the guest was gone before it was sent
	over   atomic.Bool // its last frame goes to the client, or has gone

	mu       sync.Mutex
	gone     bool // the client is
	finished bool
	done     chan struct{}
	settle   chan struct{} // of capacity 1: an abandoned one owes credit
}

func newRelay(c *client, stream uint32, m *wire.StartMessage) *relay {
	return &relay{c: c, stream: stream, flow: newFlow(m), begun: time.Now(), done: make(chan struct{}), settle: make(chan struct{}, 1)}
}

// start hands a command to the guest. The caller has counted it in life.
func (r *relay) start(m *wire.StartMessage) error {
	m.Env = beneath(r.c.k.env, m.Env)
	start, err := json.Marshal(m)
	if err != nil {
		return err
	}
	guest, err := r.c.k.box.Session().Relay(start, r.deliver)
	if err != nil {
		return err
	}
	r.guest.Store(guest)
	select {
	case <-r.done: // before anybody could tell the guest's side
		guest.Close()
	default:
	}
	return nil
}

// toGuest sends a frame on. That the guest is gone is told by the end of the
// environment.
func (r *relay) toGuest(t wire.Type, payload []byte) {
	if g := r.guest.Load(); g != nil {
		_ = g.Send(t, payload)
	}
}

// beneath puts variables below others, which win.
func beneath(below []string, above []wire.Text) []wire.Text {
	var out []wire.Text
	for _, e := range below {
		if !slices.ContainsFunc(above, func(t wire.Text) bool { return sameName(e, string(t)) }) {
			out = append(out, wire.Text(e))
		}
	}
	return append(out, above...)
}

func sameName(a, b string) bool {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			return false
		}
		if a[i] == '=' {
			return true
		}
	}
	return false
}

// deliver takes a frame from the guest. It runs on the goroutine that reads
// from the guest, and must not block.
func (r *relay) deliver(t wire.Type, payload []byte) {
	switch t {
	case wire.Stdout, wire.Stderr, wire.Report:
		if r.flow.data(r.flow.down, t, len(payload)) != nil {
			return
		}
	case wire.Credit:
		var m wire.CreditMessage
		if json.Unmarshal(payload, &m) != nil || r.flow.credit(r.flow.up, m.Channel, m.Bytes) != nil {
			return
		}
	case wire.Exit:
		if !r.flow.exit() {
			return
		}
		payload = r.c.k.explain(payload, r.begun)
	case wire.Started, wire.Divert:
	default:
		return
	}
	r.mu.Lock()
	gone := r.gone
	r.mu.Unlock()
	// Before the client knows: what it asks next is not told that the command
	// runs.
	over := r.flow.over()
	if over {
		r.over.Store(true)
	}
	if gone {
		r.poke()
	} else {
		r.c.send(t, r.stream, slices.Clone(payload))
	}
	if over {
		r.finish()
	}
}

func (r *relay) poke() {
	select {
	case r.settle <- struct{}{}:
	default:
	}
}

// finish is called when nothing more comes from the guest.
func (r *relay) finish() {
	r.mu.Lock()
	first := !r.finished
	r.finished = true
	r.mu.Unlock()
	if first {
		r.c.streams.Remove(r.stream)
		close(r.done)
		if g := r.guest.Load(); g != nil {
			g.Close()
		}
		r.c.k.life.end()
	}
}

// frame takes a frame of the client. An error ends the conversation with it.
func (r *relay) frame(f wire.Frame) error {
	var err error
	switch f.Type {
	case wire.Stdin, wire.PromptData:
		err = r.flow.data(r.flow.up, f.Type, len(f.Payload))
	case wire.Credit:
		var m wire.CreditMessage
		if err = f.Decode(&m); err == nil {
			err = r.flow.credit(r.flow.down, m.Channel, m.Bytes)
		}
	case wire.Signal:
		err = f.Decode(&wire.SignalMessage{})
	case wire.Terminate:
		err = f.Decode(&wire.EndMessage{})
	case wire.Resize:
		err = f.Decode(&wire.Size{})
	case wire.Divert:
		err = f.Decode(&wire.DivertMessage{})
	default:
		return nil
	}
	if err == nil {
		r.toGuest(f.Type, f.Payload)
	}
	return err
}

func (r *relay) terminate(grace time.Duration) {
	if b, err := json.Marshal(wire.EndMessage{Grace: grace}); err == nil {
		r.toGuest(wire.Terminate, b)
	}
}

// abandon ends the command because its client is gone, and takes what it still
// writes, so that its end is not held up. What it read is not ended: half a
// file must not look like a whole one.
func (r *relay) abandon() {
	r.mu.Lock()
	r.gone = true
	r.mu.Unlock()
	r.terminate(abandonGrace)
	for {
		for t, n := range r.flow.owed() {
			if b, err := json.Marshal(wire.CreditMessage{Channel: t, Bytes: n}); err == nil {
				r.toGuest(wire.Credit, b)
			}
		}
		select {
		case <-r.done:
			return
		case <-r.settle:
		}
	}
}

// lose tells the client that it is not known how the command ended, or that it
// has not begun.
func (r *relay) lose(why string) {
	if r.flow.exit() {
		m := wire.ExitMessage{Lost: why, Exit: jobs.Exit{Started: true, Code: codeFailed, Error: why}, Started: r.begun, Ended: time.Now()}
		if r.late.Load() {
			m = r.c.k.again()
		}
		_ = r.c.out.message(wire.Exit, r.stream, m)
	}
	for _, t := range []wire.Type{wire.Stdout, wire.Stderr, wire.Report} {
		if r.flow.data(r.flow.down, t, 0) == nil {
			r.c.send(t, r.stream, nil)
		}
	}
	r.finish()
}

// wait returns when the command is over.
func (r *relay) wait() <-chan struct{} { return r.done }
