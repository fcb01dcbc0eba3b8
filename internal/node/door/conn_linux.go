package door

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/node/room"
)

// conn is a connection to the door.
type conn struct {
	sock  *room.Conn
	front []byte // read, and not yet given to the flow

	answer func(Decision) []byte // in the program's protocol; nil where the flow answers
	once   sync.Once             // of the answer
	state  atomic.Int32
}

// States of a connection.
const (
	unanswered = iota
	carried
	refused // only the answer is left to read
)

var errUnanswered = errors.New("the program has no answer yet")

// open reads what the program wants. Without a request it has been told why.
func (c *conn) open() (r Request, ok bool) {
	if !c.more() {
		return r, false
	}
	switch b := c.front[0]; {
	case b == socksVersion:
		return c.openSOCKS()
	case b >= 'A' && b <= 'Z':
		return c.openHTTP()
	}
	c.refuse(refusal{Hint: errProtocol.Error()}.answer(400))
	return r, false
}

// more reads on, up to maxHead.
func (c *conn) more() bool {
	c.front = slices.Grow(c.front, max(1<<10, len(c.front)/2))
	n, _ := c.sock.Read(c.front[len(c.front):min(cap(c.front), maxHead)])
	c.front = c.front[:len(c.front)+n]
	return n > 0
}

func (c *conn) openHTTP() (r Request, ok bool) {
	for {
		o, more, err := readHTTP(c.front)
		switch {
		case err != nil:
			c.refuse(refusal{Hint: err.Error()}.answer(400))
			return r, false
		case !more && o.proxy:
			c.state.Store(carried)
			return Request{Host: o.host, Port: o.port, Proxy: true}, true
		case !more:
			return c.request(o, o.answer), true
		case len(c.front) >= maxHead:
			c.refuse(refusal{Hint: "a head larger than 64 KiB"}.answer(431))
			return r, false
		case !c.more():
			return r, false
		}
	}
}

func (c *conn) openSOCKS() (r Request, ok bool) {
	for {
		size, plain, more := readGreeting(c.front)
		if !more && !plain {
			c.refuse([]byte{socksVersion, socksNoMethod})
			return r, false
		}
		if !more {
			c.front = c.front[size:]
			break
		}
		if !c.more() {
			return r, false
		}
	}
	if _, err := c.sock.Write([]byte{socksVersion, 0}); err != nil {
		return r, false
	}
	for {
		o, more, reply := readSOCKS(c.front)
		switch {
		case reply != 0:
			c.refuse(socksReply(reply))
			return r, false
		case !more:
			return c.request(o, o.socks), true
		case !c.more():
			return r, false
		}
	}
}

// request is one that is to be answered.
func (c *conn) request(o opening, answer func(Decision) []byte) Request {
	c.front, c.answer = c.front[o.size:], answer
	return Request{Host: o.host, Port: o.port, Answer: c.decide}
}

// decide tells the program the decision, the first time.
func (c *conn) decide(d Decision) {
	if c.answer == nil {
		return
	}
	c.once.Do(func() {
		if b := c.answer(d); d.Verdict != Allowed {
			c.refuse(b)
		} else if _, err := c.sock.Write(b); err == nil {
			c.state.Store(carried)
		}
	})
}

// refuse writes the last that the program is told. What waits for a byte of the
// program's is told that there is none.
func (c *conn) refuse(b []byte) {
	c.state.Store(refused)
	_, _ = c.sock.Write(b)
	_ = c.sock.CloseWrite()
	_ = c.sock.SetReadDeadline(time.Unix(1, 0))
}

// end closes what was not carried to its end so that the program reads what it was
// told last: bytes of its own that are not read would take that from it.
func (c *conn) end() {
	c.giveUp()
	_ = c.sock.CloseWrite()
	_ = c.sock.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, c.sock, maxHead)
	_ = c.sock.Close()
}

func (c *conn) giveUp() {
	c.decide(Decision{Verdict: Unavailable, Hint: "the way to the judge has ended"})
}

func (c *conn) Read(b []byte) (int, error) {
	if c.state.Load() == refused {
		return 0, io.EOF
	}
	if len(c.front) > 0 {
		n := copy(b, c.front)
		if c.front = c.front[n:]; len(c.front) == 0 {
			c.front = nil
		}
		return n, nil
	}
	n, err := c.sock.Read(b)
	if c.state.Load() == refused {
		return 0, io.EOF
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	switch c.state.Load() {
	case unanswered:
		return 0, errUnanswered
	case refused:
		return 0, os.ErrClosed
	}
	return c.sock.Write(b)
}

// CloseWrite tells the program that no more comes.
func (c *conn) CloseWrite() error {
	if c.state.Load() == unanswered {
		return errUnanswered
	}
	return c.sock.CloseWrite()
}

// Close ends the connection. That of a program that is refused is closed once it has
// read why.
func (c *conn) Close() error {
	if c.giveUp(); c.state.Load() == refused {
		return nil
	}
	return c.sock.Close()
}
