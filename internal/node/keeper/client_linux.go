package keeper

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// maxStreams bounds what one client may have under way at a time.
const maxStreams = 256

// helloWait is how long a client may take for its first word.
const helloWait = 10 * time.Second

// stream is something that a client has under way.
type stream interface {
	// frame takes a frame of the client; an error ends the conversation.
	frame(f wire.Frame) error
	// terminate ends it, as the client wishes.
	terminate(grace time.Duration)
	// abandon ends it because the client is gone, and may take as long as
	// that takes.
	abandon()
	// lose tells the client that the environment has ended under it.
	lose(why string)
	// wait is closed when it is over.
	wait() <-chan struct{}
}

// client is one connection. To it, the keeper is a guest.
type client struct {
	k    *keeper
	conn *os.File
	in   *wire.Reader
	w    *wire.Writer
	out  *outQueue

	streams wire.Streams[stream]

	mu     sync.Mutex
	pinged time.Time // zero is never
}

// serve talks to one client until it or the keeper ends.
func (k *keeper) serve(conn *os.File) {
	c := &client{k: k, conn: conn, in: wire.NewReader(conn), w: wire.NewWriter(conn), streams: wire.Streams[stream]{Most: maxStreams}}
	c.out = newOutQueue(c.w)
	defer func() { _ = conn.Close() }()
	if !k.add(c) {
		_, _ = conn.WriteString(greeting(sayEnding))
		return
	}
	defer k.drop(c)
	if _, err := conn.WriteString(greeting(saySecret)); err != nil {
		return
	}
	if err := c.admit(); err != nil {
		if !errors.Is(err, io.EOF) {
			k.log.Warn("a client was turned away", "err", err)
		}
		return
	}
	if err := c.greet(); err != nil {
		if !errors.Is(err, io.EOF) {
			k.log.Info("a client was turned away", "err", err)
		}
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		c.out.run()
	}()
	err := c.read()
	if k.life.Why() != nil {
		// The keeper ends: what is under way is told first. Over a link, a
		// client may have sent what was not read.
		_ = c.out.message(wire.Quit, c.streams.Last(), wire.EndMessage{})
		<-k.told
		c.out.close()
		select {
		case <-sent:
		case <-time.After(k.times.flush):
		}
		<-k.gone
	} else if err != nil {
		k.log.Info("a client was dropped", "err", err)
	}
	c.out.close()
	_ = conn.Close()
	<-sent
	var all sync.WaitGroup
	for _, s := range c.streams.All() {
		all.Go(s.abandon)
	}
	all.Wait()
}

// admit reads the secret of keeper.json, which only who can read the state
// directory knows: what is contained may see the socket, and is not let in.
func (c *client) admit() error {
	_ = c.conn.SetReadDeadline(time.Now().Add(helloWait))
	const most = 64
	said, err := readLine(c.conn, most)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(said), []byte(c.k.secret)) != 1 {
		return errors.New("it does not know the secret of keeper.json")
	}
	return nil
}

// greet exchanges the hellos.
func (c *client) greet() error {
	_ = c.conn.SetReadDeadline(time.Now().Add(helloWait))
	return wire.Greet(c.in, c.w, func(hello wire.ClientHello, err error) (wire.GuestHello, error) {
		_ = c.conn.SetReadDeadline(time.Time{})
		if hello.Version != wire.Version {
			err = fmt.Errorf("the client speaks version %d of the protocol, this environment's keeper %d: stop the environment and open it again",
				hello.Version, wire.Version)
		}
		answer := c.k.hello
		answer.NoKeys = c.k.keyless.Load()
		if err != nil {
			answer.Error = err.Error()
		}
		return answer, err
	})
}

// read serves the client's frames until it leaves. nil is that it left.
func (c *client) read() error {
	err := c.in.Serve(c.frame)
	if errors.Is(err, errQuit) || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

var errQuit = errors.New("the client has left")

// frame serves one frame. An error ends the conversation.
func (c *client) frame(f wire.Frame) error {
	switch f.Type {
	case wire.Ping:
		var m wire.PingMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		c.mu.Lock()
		c.pinged = time.Now()
		c.mu.Unlock()
		return c.out.message(wire.Pong, 0, m)
	case wire.Start:
		return c.start(f)
	case wire.End:
		var m wire.EndMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		go c.end(f.Stream, m.Grace)
	case wire.Quit:
		return errQuit
	default:
		return c.streams.Route(f, stream.frame)
	}
	return nil
}

// end ends all that this client has under way.
func (c *client) end(answer uint32, grace time.Duration) {
	late := time.After(grace + 10*time.Second)
	left := 0
	for _, s := range c.streams.All() {
		s.terminate(grace)
	}
	for _, s := range c.streams.All() {
		select {
		case <-s.wait():
		case <-late:
			left++
		}
	}
	_ = c.out.message(wire.Ended, answer, wire.EndedMessage{Left: left})
}

// start begins what a client asks for.
func (c *client) start(f wire.Frame) error {
	var m wire.StartMessage
	if err := f.Decode(&m); err != nil {
		return err
	}
	switch err := c.streams.Next(f.Stream); {
	case errors.Is(err, wire.ErrMany):
		return c.refuse(f.Stream, wire.ExitMessage{Exit: jobs.Exit{
			Code:  codeFailed,
			Error: fmt.Sprintf("this client has %d requests under way, and no more are allowed", maxStreams),
		}})
	case err != nil:
		return err
	case m.Keep != nil:
		return c.startKeep(f.Stream, &m)
	case !c.k.life.begin():
		return c.refuse(f.Stream, c.k.again())
	}
	c.k.life.answered(c)
	c.k.noteSession(&m)
	r := newRelay(c, f.Stream, &m)
	c.streams.Put(f.Stream, r)
	if err := r.start(&m); err != nil {
		if !errors.Is(err, session.ErrGuestGone) {
			r.lose("it could not be told to the guest: " + err.Error())
			return nil
		}
		// Not all of it was sent, so nothing has begun, and the client may ask
		// again: when it is said why the environment ends, or now.
		r.late.Store(true)
		if why := c.k.life.Why(); why != nil {
			r.lose(why.text)
		}
	}
	return nil
}

// refuse answers a request of which nothing has begun.
func (c *client) refuse(stream uint32, m wire.ExitMessage) error {
	err := c.out.message(wire.Exit, stream, m)
	c.send(wire.Stdout, stream, nil)
	c.send(wire.Stderr, stream, nil)
	c.send(wire.Report, stream, nil)
	return err
}

// send queues a frame. A client that lets too much wait is dropped.
func (c *client) send(t wire.Type, stream uint32, payload []byte) {
	if c.out.put(t, stream, payload) != nil {
		_ = c.conn.Close()
	}
}

// silent tells whether a client that used to ping does so no more.
func (c *client) silent(limit time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.pinged.IsZero() && time.Since(c.pinged) > limit
}
