package wire

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// Window is how many bytes of one channel may be on their way: enough for the
// best that a link by ssh or by a step does in a round trip, little enough for many
// channels.
const Window = 256 << 10

// FlowWindow is that of a flow: there may be a thousand, whose bytes wait in memory.
const FlowWindow = 64 << 10

// MaxWindow is the most that a window grows to, see [Growth]: what the fastest job step
// carries in the slowest of its round trips.
const MaxWindow = 4 << 20

// growTime is how fast a window's bytes are taken where it grows. On a slower channel
// a larger one would do nothing.
const growTime = 200 * time.Millisecond

// A Growth is what the windows of several channels may grow by in all, in bytes. It bounds
// what waits in memory when their readers stop.
type Growth struct {
	mu   sync.Mutex
	left int
}

// NewGrowth returns one of n bytes.
func NewGrowth(n int) *Growth { return &Growth{left: n} }

// take returns how many of n bytes there are; less than none gives back.
func (g *Growth) take(n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n = min(n, g.left)
	g.left -= n
	return n
}

// window is that of a channel.
func (t Type) window() int {
	if t == FlowUp || t == FlowDown {
		return FlowWindow
	}
	return Window
}

// ErrFlow is a side that sent more than it had credit for, or gave credit for
// what was never sent.
var ErrFlow = errors.New("flow control was ignored")

// Sender sends a channel's bytes as its credit allows. It is an io.Writer for
// one goroutine; Grant and Stop may be called by others.
type Sender struct {
	w      *Writer
	typ    Type
	stream uint32

	mu      sync.Mutex
	ready   sync.Cond
	most    int // the window
	credit  int
	stopped bool
	ended   bool
	past    *os.File // takes the bytes instead, see Divert
	next    *os.File // is to do so from the next Write on, see Follow
}

// Divert sends the channel's bytes to f from now on, which the Sender closes at
// its end; the end itself is still a frame. It must come before the first Write.
func (s *Sender) Divert(f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past = f
}

// Follow sends the channel's bytes to f from the next Write on, and says so in a frame
// before that. The Sender closes f at its end.
func (s *Sender) Follow(f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.ended || s.past != nil || s.next != nil {
		_ = f.Close()
		return
	}
	s.next = f
}

// follow goes on where Follow has said, and tells that.
func (s *Sender) follow() error {
	s.mu.Lock()
	f := s.next
	s.next = nil
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	if err := s.w.Message(Divert, s.stream, nil); err != nil {
		_ = f.Close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_ = f.Close()
	}
	s.past = f
	return nil
}

// Pipe returns where the bytes go instead, or nil: what is moved there is as
// what Write sends.
func (s *Sender) Pipe() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.past
}

// NewSender returns the sending side of a channel.
func NewSender(w *Writer, typ Type, stream uint32) *Sender {
	s := &Sender{w: w, typ: typ, stream: stream, most: typ.window(), credit: typ.window()}
	s.ready.L = &s.mu
	return s
}

// Widen takes credit of a receiver whose window grows. It must come before the first Grant.
func (s *Sender) Widen() { s.most = MaxWindow }

// Grant gives credit back.
func (s *Sender) Grant(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= 0 || n > s.most-s.credit {
		return ErrFlow
	}
	s.credit += n
	s.ready.Signal()
	return nil
}

// Granted takes a frame of credit, which is for one of the senders of its stream.
// A nil one is none; credit for another channel is skipped.
func Granted(f Frame, senders ...*Sender) error {
	var m CreditMessage
	if err := f.Decode(&m); err != nil {
		return err
	}
	for _, s := range senders {
		if s != nil && s.typ == m.Channel {
			return s.Grant(m.Bytes)
		}
	}
	return nil
}

// Credits is what [Inbox.Drain] wants: it sends credit for a channel.
func (w *Writer) Credits(channel Type, stream uint32) func(n int) {
	return func(n int) { _ = w.Message(Credit, stream, CreditMessage{Channel: channel, Bytes: n}) }
}

// Stop makes all writes fail from now on, waiting ones too.
func (s *Sender) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, f := range []*os.File{s.past, s.next} {
		if f != nil {
			_ = f.Close() // wakes a write whose reader does not read
		}
	}
	s.next = nil
	s.ready.Broadcast()
}

// take waits for credit and spends up to n bytes of it.
func (s *Sender) take(n int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.credit == 0 && !s.stopped {
		s.ready.Wait()
	}
	if s.stopped {
		return 0, io.ErrClosedPipe
	}
	n = min(n, s.credit, MaxData)
	s.credit -= n
	return n, nil
}

// Write sends p, in pieces as there is credit.
func (s *Sender) Write(p []byte) (written int, err error) {
	if err := s.follow(); err != nil {
		return 0, err
	}
	if f := s.Pipe(); f != nil {
		return f.Write(p)
	}
	for len(p) > 0 {
		n, err := s.take(len(p))
		if err != nil {
			return written, err
		}
		if err := s.w.Data(s.typ, s.stream, p[:n]); err != nil {
			return written, err
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}

// Close ends the channel. It needs no credit.
func (s *Sender) Close() error {
	s.mu.Lock()
	for _, f := range []*os.File{s.past, s.next} {
		if f != nil {
			_ = f.Close()
		}
	}
	s.next, s.ended = nil, true
	s.mu.Unlock()
	return s.w.Data(s.typ, s.stream, nil)
}

// Inbox is the receiving side of a channel: it holds what has come and was not
// taken yet, at most a window of bytes. Put and Fail never block.
type Inbox struct {
	mu     sync.Mutex
	ready  sync.Cond
	buf    []byte
	window int
	taken  int  // by Read, of buf
	done   int  // taken, and not yet granted back
	owed   int  // bytes put and not yet granted back
	closed bool // nothing more comes
	whole  bool // its end has come
	failed bool // no reader takes bytes any more

	growth *Growth   // or nil: the window stays as it is
	grown  int       // by how much it has
	since  time.Time // the reader had nothing to take at times, since then
	passed int       // bytes taken since then
}

// NewInbox returns an empty Inbox of a channel of this type.
func NewInbox(t Type) *Inbox {
	b := &Inbox{window: t.window()}
	b.ready.L = &b.mu
	return b
}

// Widen lets the window grow where its reader waits for the link and not the other way round. The
// other side must have called [Sender.Widen]. It must come before the first bytes.
func (b *Inbox) Widen(g *Growth) { b.growth = g }

// Put takes the payload of a frame; an empty one is the end of the channel.
func (b *Inbox) Put(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed {
		return nil // it was on its way when the channel was given up
	}
	if b.closed || len(p) > b.window-b.owed {
		return ErrFlow
	}
	b.whole = len(p) == 0
	b.closed = b.whole
	b.owed += len(p)
	b.buf = append(b.buf, p...)
	b.ready.Signal()
	return nil
}

// Fail gives the channel up, because the stream is broken or not wanted any more.
// What is held can still be taken; what comes later is thrown away.
func (b *Inbox) Fail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.failed = true, true
	if b.growth != nil {
		b.growth.take(-b.grown)
		b.growth = nil
	}
	b.ready.Signal()
}

// wait waits until there are bytes that were not taken, or none come any more. The caller holds b.mu.
func (b *Inbox) wait() {
	if b.growth != nil && b.taken == len(b.buf) && b.since.IsZero() {
		b.since, b.passed = time.Now(), 0
	}
	for b.taken == len(b.buf) && !b.closed {
		b.ready.Wait()
	}
}

// give returns what is to be granted now that n more bytes were taken. The caller holds b.mu.
func (b *Inbox) give(n int) int {
	b.done += n
	b.passed += n
	// Less than a quarter of the window is held back, so a sender whose
	// bytes were all taken always has credit.
	if b.done < b.window/4 {
		return 0
	}
	back := b.done
	b.owed, b.done = b.owed-back, 0
	if !b.since.IsZero() && b.passed >= b.window {
		if b.growth != nil && time.Since(b.since) < growTime {
			more := b.growth.take(min(b.window, MaxWindow-b.window))
			b.window, b.grown, back = b.window+more, b.grown+more, back+more
		}
		b.since = time.Time{}
	}
	return back
}

// next waits for bytes and returns all there are, or nil at the end. spare is
// the slice that the call before has returned.
func (b *Inbox) next(spare []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wait()
	p := b.buf
	b.buf = spare[:0]
	return p
}

// Drain writes the channel to w until its end and calls grant with the bytes
// that are done with, in portions. When w fails, the rest is thrown away, so
// that the sender is not held up, and the first error is returned.
func (b *Inbox) Drain(w io.Writer, grant func(n int)) (err error) {
	var p []byte
	for {
		if p = b.next(p); len(p) == 0 {
			return err
		}
		if err == nil {
			_, err = w.Write(p)
		}
		b.mu.Lock()
		back := b.give(len(p))
		b.mu.Unlock()
		if back > 0 {
			grant(back)
		}
	}
}

// Await waits until Read does not wait.
func (b *Inbox) Await() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.taken == len(b.buf) && !b.closed {
		b.ready.Wait()
	}
}

// Read takes bytes as an io.Reader does, in place of Drain. A channel that was given
// up before its end had come ends with io.ErrUnexpectedEOF.
func (b *Inbox) Read(p []byte, grant func(n int)) (n int, err error) {
	b.mu.Lock()
	b.wait()
	if b.taken == len(b.buf) {
		defer b.mu.Unlock()
		if b.whole {
			return 0, io.EOF
		}
		return 0, io.ErrUnexpectedEOF
	}
	n = copy(p, b.buf[b.taken:])
	if b.taken += n; b.taken == len(b.buf) {
		b.buf, b.taken = b.buf[:0], 0
	}
	back := b.give(n)
	b.mu.Unlock()
	if back > 0 {
		grant(back)
	}
	return n, nil
}
