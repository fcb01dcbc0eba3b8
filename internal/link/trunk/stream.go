package trunk

import (
	"errors"
	"io"
	"sync"

	"berth/internal/link/wire"
)

// A Stream is one conversation over a trunk.
type Stream[Q any, A Answer] struct {
	Request Q            // at the far side
	Up      *wire.Sender // to the other side

	t    *Trunk[Q, A]
	id   uint32
	down *wire.Inbox // from it

	answered chan struct{} // near: closed when answer or err is set
	over     chan struct{} // closed when the other side is done with it
	mu       sync.Mutex
	answer   A
	err      error
	told     bool
	whole    bool  // the end of the bytes has come
	cut      error // why no more of them come
	ended    bool
	half     sync.Once
}

func newStream[Q any, A Answer](t *Trunk[Q, A], id uint32) *Stream[Q, A] {
	s := &Stream[Q, A]{t: t, id: id,
		Up: wire.NewSender(t.out, t.mine, id), down: wire.NewInbox(t.theirs), answered: make(chan struct{}), over: make(chan struct{})}
	if t.growth != nil {
		s.Up.Widen()
		s.down.Widen(t.growth)
	}
	return s
}

// Answered is closed, at the near side, when [Stream.Answer] is known.
func (s *Stream[Q, A]) Answered() <-chan struct{} { return s.answered }

// Answer is what the far side has said first. An error is that the conversation, or the
// link, ended before that.
func (s *Stream[Q, A]) Answer() (A, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer, s.err
}

// Over is closed when the other side is done with it.
func (s *Stream[Q, A]) Over() <-chan struct{} { return s.over }

// frame serves a frame of this stream.
func (s *Stream[Q, A]) frame(f wire.Frame) error {
	switch f.Type {
	case s.t.theirs:
		if len(f.Payload) == 0 {
			s.mu.Lock()
			s.whole = true
			s.mu.Unlock()
		}
		return s.down.Put(f.Payload)
	case wire.Credit:
		return wire.Granted(f, s.Up)
	case wire.Started:
		var a A
		if err := f.Decode(&a); err != nil {
			return err
		}
		s.tell(a, nil)
	case wire.Exit: // the far side's last word
		var a A
		if err := f.Decode(&a); err != nil {
			return err
		}
		s.t.streams.Remove(s.id)
		s.end(&a, nil)
	case wire.Terminate: // the near side's
		s.end(nil, nil)
	}
	return nil
}

// tell sets the answer; the first one counts.
func (s *Stream[Q, A]) tell(a A, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.told {
		s.told, s.answer, s.err = true, a, err
		close(s.answered)
	}
}

// end notes that the other side is done with it.
func (s *Stream[Q, A]) end(last *A, err error) {
	var a A
	cut := err
	if last != nil {
		a = *last
		cut = a.Err()
	}
	if err == nil && cut == nil {
		err = ErrOver
	}
	s.tell(a, err)
	s.mu.Lock()
	again := s.ended
	s.ended = true
	if !again && !s.whole {
		s.cut = cut
	}
	s.mu.Unlock()
	if again {
		return
	}
	s.Up.Stop()
	s.down.Fail()
	close(s.over)
}

// ErrOver is a conversation that ended before it was answered.
var ErrOver = errors.New("the other side has ended this conversation")

// Accept is the far side's answer.
func (s *Stream[Q, A]) Accept(a A) error { return s.t.out.Message(wire.Started, s.id, a) }

// Finish is the far side's last word.
func (s *Stream[Q, A]) Finish(a A) {
	s.end(nil, nil)
	s.t.streams.Remove(s.id)
	if err := s.t.out.Message(wire.Exit, s.id, a); err != nil {
		s.t.mute(err)
	}
}

// Terminate ends a stream for the near side, which wants no more of it.
func (s *Stream[Q, A]) Terminate() {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if !ended {
		_ = s.t.out.Message(wire.Terminate, s.id, nil)
		s.end(nil, nil)
	}
	s.t.streams.Remove(s.id)
}

// CloseWrite tells the other side that no more bytes come.
func (s *Stream[Q, A]) CloseWrite() {
	s.half.Do(func() {
		s.mu.Lock()
		ended := s.ended
		s.mu.Unlock()
		if !ended {
			_ = s.Up.Close()
		}
	})
}

// Drain writes what comes to w, to its end.
func (s *Stream[Q, A]) Drain(w io.Writer) error {
	return s.down.Drain(w, s.t.out.Credits(s.t.theirs, s.id))
}

// copyBuffer is what is read at a time of what is sent.
const copyBuffer = wire.MaxData

// Send sends what r holds, to its end or an error of r's, and not that end.
func (s *Stream[Q, A]) Send(r io.Reader) error {
	// The wrappers keep io.Copy from asking the kernel to splice, which holds a
	// byte back until a pipe is full on some.
	_, err := io.CopyBuffer(struct{ io.Writer }{s.Up}, struct{ io.Reader }{r}, make([]byte, copyBuffer))
	return err
}

// A Conn is a conversation as a connection, within this process.
type Conn[Q any, A Answer] struct {
	s     *Stream[Q, A]
	grant func(n int)
}

// Conn returns it. Where the end of the bytes has not come, the error of reading is the far
// side's last word, or that the link is broken.
func (s *Stream[Q, A]) Conn() *Conn[Q, A] { return &Conn[Q, A]{s, s.t.out.Credits(s.t.theirs, s.id)} }

func (c *Conn[Q, A]) Read(p []byte) (int, error) {
	n, err := c.s.down.Read(p, c.grant)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		switch {
		case c.s.cut == nil: // all has come, or the other side wants no more
			err = io.EOF
		case !errors.Is(c.s.cut, io.EOF):
			err = c.s.cut
		}
	}
	return n, err
}

func (c *Conn[Q, A]) Write(p []byte) (int, error) { return c.s.Up.Write(p) }

// CloseWrite tells the other side that no more comes.
func (c *Conn[Q, A]) CloseWrite() error {
	c.s.CloseWrite()
	return nil
}

// Close ends the conversation.
func (c *Conn[Q, A]) Close() error {
	c.s.Terminate()
	return nil
}
