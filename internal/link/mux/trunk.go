package mux

import (
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/link/wire"
	"berth/internal/node/keeper"
	"berth/jobs"
)

// What stands before the first frame of each side.
const (
	nearMagic = "\x00berth-near\n"
	farMagic  = "\x00berth-far\n"
	version   = 1
)

// lines lets every write end in a line's end: a step of Slurm passes on the last line of
// a command's output only when it is whole, unless it is told --unbuffered (which
// puts a terminal in the place of a pipe). The line's end is the payload of a
// frame of an unknown type, and so is skipped.
type lines struct{ w io.Writer }

const lineEnd = "\x7f\x00\x00\x00\x00\x00\x00\x00\x01\n"

func (l lines) Write(p []byte) (int, error) {
	if _, err := l.w.Write(append(append(make([]byte, 0, len(p)+len(lineEnd)), p...), lineEnd...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Times, when an option is not set.
const (
	defaultInterval = 4 * time.Second
	silentIntervals = 4
)

// nearHello is the near side's first message.
type nearHello struct {
	Version  int           `json:"version"`
	Interval time.Duration `json:"interval_ns"` // of its pings
}

// farHello is the answer, when the keeper is reached.
type farHello struct {
	Version int           `json:"version"`
	Report  keeper.Report `json:"report"`
}

// Kinds of requests.
const (
	kindKeeper = "keeper" // a connection to the keeper
	kindPipe   = "pipe"   // a named pipe, for much data
	kindShared = "shared" // whether the far side sees a file
)

// request begins a conversation.
type request struct {
	Kind   string         `json:"kind"`
	Pipe   *pipeRequest   `json:"pipe,omitempty"`
	Shared *sharedRequest `json:"shared,omitempty"`
}

// answer is the first thing that is said to a request.
type answer struct {
	keeper.Report
	Pipe string `json:"pipe,omitempty"` // the name of a named pipe that was made
}

// refusal is the answer that brings an error.
func refusal(err error) answer { return answer{Report: keeper.Failed(err)} }

// trunk is the one stream between the two sides, from one of them.
type trunk struct {
	in           *wire.Reader
	out          *wire.Writer
	mine, theirs wire.Type      // of the bytes that go out and come in
	serve        func(*stream)  // begins what the other side asks for; nil is the near side
	leave        chan struct{}  // closed when the other side says that it leaves
	left         keeper.Report  // why, set before that
	heard        atomic.Uint64  // frames
	words        chan wire.Type // pings and pongs to send
	shut         func()         // closes the streams below
	gone         chan struct{}  // closed when nothing comes or goes any more
	streams      wire.Streams[*stream]
	starting     sync.Mutex
	mu           sync.Mutex
	why          error
	leaving      sync.Once
}

func newTrunk(in *wire.Reader, out *wire.Writer, near bool, shut func()) *trunk {
	t := &trunk{
		in: in, out: out, mine: wire.Stdout, theirs: wire.Stdin, shut: shut,
		leave: make(chan struct{}), words: make(chan wire.Type, 1), gone: make(chan struct{}), streams: wire.Streams[*stream]{Most: maxStreams},
	}
	if near {
		t.mine, t.theirs = t.theirs, t.mine
	}
	return t
}

// run serves frames until the link breaks or the other side leaves.
func (t *trunk) run(interval time.Duration) {
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
	t.fail(err)
}

// frame serves a frame. It must not wait for anything.
func (t *trunk) frame(f wire.Frame) error {
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
		return t.streams.Route(f, (*stream).frame)
	}
	return nil
}

// maxStreams bounds what is under way at a time.
const maxStreams = 4096

// begin takes a request of the other side.
func (t *trunk) begin(f wire.Frame) error {
	if t.serve == nil {
		return nil
	}
	if err := t.streams.Next(f.Stream); err != nil {
		return err
	}
	s := newStream(t, f.Stream)
	t.streams.Put(f.Stream, s)
	if err := f.Decode(&s.request); err != nil {
		return err
	}
	go t.serve(s)
	return nil
}

// open sends a request.
func (t *trunk) open(req request) (*stream, error) {
	// Streams are numbered in the order of their first frames.
	t.starting.Lock()
	defer t.starting.Unlock()
	s, err := t.streams.Open(func(id uint32) *stream { return newStream(t, id) })
	if err != nil {
		return nil, err
	}
	if err := t.out.Message(wire.Start, s.id, req); err != nil {
		t.mute(err)
		return nil, err
	}
	return s, nil
}

// word lets something be said that is not waited for; when the line is busy,
// what is on its way is sign enough.
func (t *trunk) word(w wire.Type) {
	select {
	case t.words <- w:
	default:
	}
}

func (t *trunk) say() {
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

// errSilent is a link over which nothing comes any more.
var errSilent = errors.New("nothing is heard from the other side any more")

// listen notices a silent other side. Intervals are counted, because a clock
// also runs while this process or its machine is stopped.
func (t *trunk) listen(interval time.Duration) {
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
			t.fail(errSilent)
			return
		}
	}
}

// lastWords is how long the other side's last words may take.
const lastWords = time.Second

// mute notes that nothing can be sent any more. Why may just be coming.
func (t *trunk) mute(err error) { time.AfterFunc(lastWords, func() { t.fail(err) }) }

// fail ends everything; the first reason counts.
func (t *trunk) fail(why error) {
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
		s.end(answer{}, why)
	}
	close(t.gone)
}

// err is why the link is broken, or nil.
func (t *trunk) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}

// quit tells the other side that this one leaves.
func (t *trunk) quit(r keeper.Report) { _ = t.out.Message(wire.Quit, 0, r) }

// stream is one conversation over a trunk.
type stream struct {
	t       *trunk
	id      uint32
	request request
	up      *wire.Sender // to the other side
	down    *wire.Inbox  // from it

	answered chan struct{} // near: closed when answer or err is set
	over     chan struct{} // closed when the other side is done with it
	mu       sync.Mutex
	answer   answer
	err      error
	told     bool
	ended    bool
	half     sync.Once
}

func newStream(t *trunk, id uint32) *stream {
	return &stream{t: t, id: id, up: wire.NewSender(t.out, t.mine, id), down: wire.NewInbox(t.theirs), answered: make(chan struct{}), over: make(chan struct{})}
}

// frame serves a frame of this stream.
func (s *stream) frame(f wire.Frame) error {
	switch f.Type {
	case s.t.theirs:
		return s.down.Put(f.Payload)
	case wire.Credit:
		return wire.Granted(f, s.up)
	case wire.Started:
		var a answer
		if err := f.Decode(&a); err != nil {
			return err
		}
		s.tell(a, nil)
	case wire.Exit: // the far side's last word
		var a answer
		if err := f.Decode(&a); err != nil {
			return err
		}
		s.t.streams.Remove(s.id)
		s.end(a, nil)
	case wire.Terminate: // the near side's
		s.end(answer{}, nil)
	}
	return nil
}

// tell sets the answer; the first one counts.
func (s *stream) tell(a answer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.told {
		s.told, s.answer, s.err = true, a, err
		close(s.answered)
	}
}

// end notes that the other side is done with it.
func (s *stream) end(a answer, err error) {
	if err == nil && a.Err() == nil {
		err = errOver
	}
	s.tell(a, err)
	s.mu.Lock()
	again := s.ended
	s.ended = true
	s.mu.Unlock()
	if again {
		return
	}
	s.up.Stop()
	s.down.Fail()
	close(s.over)
}

// errOver is a conversation that ended before it was answered.
var errOver = errors.New("the other side has ended this conversation")

// accept is the far side's answer.
func (s *stream) accept(a answer) error { return s.t.out.Message(wire.Started, s.id, a) }

// finish is the far side's last word.
func (s *stream) finish(a answer) {
	s.end(answer{}, nil)
	s.t.streams.Remove(s.id)
	if err := s.t.out.Message(wire.Exit, s.id, a); err != nil {
		s.t.mute(err)
	}
}

// terminate ends a stream for the near side, which wants no more of it.
func (s *stream) terminate() {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if !ended {
		_ = s.t.out.Message(wire.Terminate, s.id, nil)
		s.end(answer{}, nil)
	}
	s.t.streams.Remove(s.id)
}

// closeWrite tells the other side that no more bytes come.
func (s *stream) closeWrite() {
	s.half.Do(func() {
		s.mu.Lock()
		ended := s.ended
		s.mu.Unlock()
		if !ended {
			_ = s.up.Close()
		}
	})
}

// drain writes what comes to w, to its end.
func (s *stream) drain(w io.Writer) error {
	return s.down.Drain(w, s.t.out.Credits(s.t.theirs, s.id))
}

// copyBuffer is what is read at a time from a client or a keeper.
const copyBuffer = wire.MaxData

// send sends what r holds, to its end, which is told.
func (s *stream) send(r io.Reader) {
	// The wrappers keep io.Copy from asking the kernel to splice, which holds a
	// byte back until a pipe is full on some.
	_, _ = io.CopyBuffer(struct{ io.Writer }{s.up}, struct{ io.Reader }{r}, make([]byte, copyBuffer))
	s.closeWrite()
}

// line is a value as one line of JSON.
func line(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(refusal(&jobs.Error{Kind: jobs.KindInfra, Msg: "write an answer", Err: err}))
	}
	return append(b, '\n')
}
