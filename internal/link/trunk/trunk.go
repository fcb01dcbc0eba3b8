// Package trunk carries many conversations over one pair of byte streams, with the frames
// and windows of package wire: a reader never waits for anybody, so a conversation that is
// not read holds up nothing but itself.
//
// The near side begins conversations, each with a request, and pings. The far side serves
// them: an answer, bytes both ways, a last word. A side that hears nothing at all from the
// other for four times the interval (4 s), not even an answer, takes the link for dead. Any
// frame counts: on a slow link full of data, answers come late.
package trunk

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/link/wire"
)

// Times, when an option is not set.
const (
	defaultInterval = 4 * time.Second
	silentIntervals = 4
)

// An Answer is what the far side says: the first thing to a request, the last of a
// conversation, and when it leaves.
type Answer interface{ Err() error }

// A Trunk is the stream between the two sides, from one of them, with requests Q and
// answers A.
type Trunk[Q any, A Answer] struct {
	in           *wire.Reader
	out          *wire.Writer
	mine, theirs wire.Type           // of the bytes that go out and come in
	serve        func(*Stream[Q, A]) // begins what the other side asks for; nil is the near side
	leave        chan struct{}       // closed when the other side says that it leaves
	left         A                   // why, set before that
	heard        atomic.Uint64       // frames
	words        chan wire.Type      // pings and pongs to send
	shut         func()              // closes the streams below
	gone         chan struct{}       // closed when nothing comes or goes any more
	growth       *wire.Growth        // or nil: windows stay as they are
	streams      wire.Streams[*Stream[Q, A]]
	starting     sync.Mutex
	mu           sync.Mutex
	why          error
	leaving      sync.Once
}

// New returns a side, after the hellos. serve serves a request in a goroutine of its own;
// nil makes the near side. shut closes the streams below.
func New[Q any, A Answer](in *wire.Reader, out *wire.Writer, serve func(*Stream[Q, A]), shut func()) *Trunk[Q, A] {
	t := &Trunk[Q, A]{
		in: in, out: out, mine: wire.Stdout, theirs: wire.Stdin, serve: serve, shut: shut,
		leave: make(chan struct{}), words: make(chan wire.Type, 1), gone: make(chan struct{}), streams: wire.Streams[*Stream[Q, A]]{Most: maxStreams},
	}
	if serve == nil {
		t.mine, t.theirs = t.theirs, t.mine
	}
	return t
}

// Widen lets the windows of conversations grow, by n bytes in all on this side. Both sides must
// call it, before Run and Open.
func (t *Trunk[Q, A]) Widen(n int) { t.growth = wire.NewGrowth(n) }

// Run serves frames until the link breaks or the other side leaves. 0 is the usual interval.
func (t *Trunk[Q, A]) Run(interval time.Duration) {
	if interval <= 0 {
		interval = defaultInterval
	}
	go t.say()
	go t.listen(interval)
	err := t.in.Serve(t.frame)
	select {
	case <-t.leave:
		if why := t.left.Err(); why != nil {
			err = why
		}
	default:
	}
	t.Fail(err)
}

// Gone is closed when nothing comes or goes any more.
func (t *Trunk[Q, A]) Gone() <-chan struct{} { return t.gone }

// Leaves is closed when the other side has said that it leaves; [Trunk.Left] says why.
func (t *Trunk[Q, A]) Leaves() <-chan struct{} { return t.leave }

// Left is why the other side leaves.
func (t *Trunk[Q, A]) Left() A { return t.left }

// Heard counts what has come from the other side.
func (t *Trunk[Q, A]) Heard() uint64 { return t.heard.Load() }

// frame serves a frame. It must not wait for anything.
func (t *Trunk[Q, A]) frame(f wire.Frame) error {
	t.heard.Add(1)
	switch f.Type {
	case wire.Ping:
		t.word(wire.Pong)
	case wire.Pong:
	case wire.Quit:
		t.leaving.Do(func() {
			_ = f.Decode(&t.left) // what it says is for people
			close(t.leave)
		})
	case wire.Start:
		return t.begin(f)
	default:
		return t.streams.Route(f, (*Stream[Q, A]).frame)
	}
	return nil
}

// maxStreams bounds what is under way at a time.
const maxStreams = 4096

// begin takes a request of the other side.
func (t *Trunk[Q, A]) begin(f wire.Frame) error {
	if t.serve == nil {
		return nil
	}
	if err := t.streams.Next(f.Stream); err != nil {
		return err
	}
	s := newStream(t, f.Stream)
	t.streams.Put(f.Stream, s)
	if err := f.Decode(&s.Request); err != nil {
		return err
	}
	go t.serve(s)
	return nil
}

// Open sends a request, and behind it the first bytes to the other side, which may be none.
func (t *Trunk[Q, A]) Open(req Q, first []byte) (*Stream[Q, A], error) {
	// Streams are numbered in the order of their first frames.
	t.starting.Lock()
	defer t.starting.Unlock()
	s, err := t.streams.Open(func(id uint32) *Stream[Q, A] { return newStream(t, id) })
	if err != nil {
		return nil, err
	}
	if len(first) > 0 {
		t.out.Hold()
	}
	err = t.out.Message(wire.Start, s.id, req)
	if len(first) > 0 {
		_, _ = s.Up.Write(first)
		err = errors.Join(err, t.out.Release())
	}
	if err != nil {
		t.mute(err)
		return nil, err
	}
	return s, nil
}

// word lets something be said that is not waited for; when the line is busy,
// what is on its way is sign enough.
func (t *Trunk[Q, A]) word(w wire.Type) {
	select {
	case t.words <- w:
	default:
	}
}

func (t *Trunk[Q, A]) say() {
	for {
		select {
		case <-t.gone:
			return
		case w := <-t.words:
			if err := t.out.Message(w, 0, nil); err != nil {
				t.mute(err)
				return
			}
		}
	}
}

// ErrSilent is a link over which nothing comes any more.
var ErrSilent = errors.New("nothing is heard from the other side any more")

// listen notices a silent other side. Intervals are counted, because a clock
// also runs while this process or its machine is stopped.
func (t *Trunk[Q, A]) listen(interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	silent, last := 0, uint64(0)
	for {
		if t.serve == nil {
			t.word(wire.Ping)
		}
		select {
		case <-t.gone:
			return
		case <-tick.C:
		}
		if now := t.heard.Load(); now != last {
			silent, last = 0, now
		} else if silent++; silent >= silentIntervals {
			t.Fail(ErrSilent)
			return
		}
	}
}

// LastWords is how long the other side's last words may take.
const LastWords = time.Second

// mute notes that nothing can be sent any more. Why may just be coming.
func (t *Trunk[Q, A]) mute(err error) { time.AfterFunc(LastWords, func() { t.Fail(err) }) }

// Fail ends everything; the first reason counts. Nil is the end of the stream.
func (t *Trunk[Q, A]) Fail(why error) {
	if why == nil {
		why = io.EOF
	}
	t.mu.Lock()
	if t.why != nil {
		t.mu.Unlock()
		return
	}
	t.why = why
	t.mu.Unlock()
	all := t.streams.Close(why)
	t.shut()
	for _, s := range all {
		s.end(nil, why)
	}
	close(t.gone)
}

// Err is why the link is broken, or nil.
func (t *Trunk[Q, A]) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}

// Quit tells the other side that this one leaves.
func (t *Trunk[Q, A]) Quit(why A) { _ = t.out.Message(wire.Quit, 0, why) }
