package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/link/wire"
	"berth/internal/sys/run"
)

// Fixed times of the guest.
const (
	helloWait = 60 * time.Second // until the client's first word
	killWait  = 5 * time.Second  // until SIGKILL must have worked
	flushWait = 2 * time.Second  // until what commands wrote is out, when told to leave
)

// server is the guest's side of the conversation.
type server struct {
	in     *wire.Reader
	out    *wire.Writer
	stderr io.Writer
	joined bool // see [Main]

	place  place
	homes  []string // of the client's hello
	user   string
	words  []string // between the program and its own arguments
	reaper *reaper
	conf   *confiner // nil where commands have what the guest has
	files  privateDir
	rooms  rooms
	watch  *watch
	memory run.Memory   // of commands
	grace  atomic.Int64 // when it leaves by itself
	ownNS  atomic.Bool

	unpinged atomic.Bool // it leaves because no ping came

	leaving chan departure
	pongs   chan wire.PingMessage

	net     network
	asks    asks
	streams wire.Streams[receiver]
	running sync.WaitGroup // of streams

	mu      sync.Mutex
	shells  map[string]*shell // of sessions
	closing bool
}

// receiver is a command, or an operation on files.
type receiver interface {
	frame(f wire.Frame) error // must not block; an error ends the conversation
}

// departure is why and how the guest leaves.
type departure struct {
	code  int
	why   string // "" when it was told to
	grace time.Duration
}

// fork starts a process of a command's.
func (s *server) fork(fork func() (int, error)) (pid int, end <-chan reaped, err error) {
	return s.reaper.start(func() (int, error) {
		if s.conf == nil {
			return fork()
		}
		return s.conf.start(fork)
	})
}

func newServer(in io.Reader, out io.Writer, stderr io.Writer) *server {
	s := &server{
		in: wire.NewReader(in), stderr: stderr,
		reaper: newReaper(), watch: newWatch(helloWait, time.Now()),
		leaving: make(chan departure, 1), pongs: make(chan wire.PingMessage, 1),
		shells: map[string]*shell{},
	}
	s.net.s, s.net.streams.First = s, wire.OfGuest
	s.net.asking, s.net.carrying = make(chan struct{}, mostAsked), make(chan struct{}, mostCarried)
	s.out = wire.NewWriter(writing(func(p []byte) (int, error) {
		n, err := out.Write(p)
		if err != nil {
			s.leave(departure{code: codeClosed, why: "the control stream has no reader", grace: s.leaveGrace()})
		}
		return n, err
	}))
	return s
}

// writing is a function as an io.Writer.
type writing func(p []byte) (int, error)

func (f writing) Write(p []byte) (int, error) { return f(p) }

// serve runs until something makes the guest leave.
func (s *server) serve() int {
	s.guard(s.reaper.run)
	s.guard(s.begin)
	s.guard(s.answerPings)
	s.guard(func() {
		s.watch.run()
		s.leave(departure{code: codeSilent, why: "no ping came for too long", grace: s.leaveGrace()})
	})
	d := <-s.leaving

	s.unpinged.Store(d.code == codeSilent)
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	ended := make(chan int, 1)
	go func() { ended <- s.end(d.grace) }()
	var left int
	select {
	case left = <-ended:
	case <-time.After(d.grace + killWait + time.Second):
		// Something in there hangs, as an exec from a dead file system does.
		left = s.killAll()
	}
	s.explain(d, left)
	// A client that stood still, or whose words alone no longer come through, reads
	// what it finds in the stream: the ends of commands, and whether they are their own.
	within(flushWait, s.running.Wait)
	s.files.remove()
	s.rooms.remove()
	return d.code
}

// explain says on the standard error why the guest leaves. It is the last
// thing to do and must not take long: there may be no reader.
func (s *server) explain(d departure, left int) {
	within(time.Second, func() {
		if d.why != "" {
			_, _ = fmt.Fprintf(s.stderr, "berth guest: leaving: %s\n", d.why)
		}
		if left > 0 {
			_, _ = fmt.Fprintf(s.stderr, "berth guest: %d processes could not be killed\n", left)
		}
	})
}

func (s *server) leaveGrace() time.Duration { return time.Duration(s.grace.Load()) }

// leave makes serve go on; the first reason counts.
func (s *server) leave(d departure) {
	select {
	case s.leaving <- d:
	default:
	}
}

// guard runs f in a goroutine; a panic there ends everything in order instead
// of leaving commands without a guest.
func (s *server) guard(f func()) {
	go func() {
		defer func() {
			if p := recover(); p != nil {
				_, _ = fmt.Fprintf(s.stderr, "berth guest: panic: %v\n%s", p, debug.Stack())
				s.leave(departure{code: codeBroken, why: "a bug"})
			}
		}()
		f()
	}()
}

// within waits for f, but not longer than d.
func within(d time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(d):
	}
}

// begin takes the client's hello and its frames.
func (s *server) begin() {
	if err := s.greet(); err != nil {
		s.lost(err)
		return
	}
	s.read()
}

// read serves the client's frames. It never writes, see package wire. A command
// that begins goes on here, where it is, and the reading in another goroutine:
// the other way about, the command would wait until a thread has woken.
func (s *server) read() {
	for {
		f, err := s.in.Next()
		var run func()
		if err == nil {
			run, err = s.frame(f)
		}
		if err != nil {
			s.lost(err)
			return
		}
		if run != nil {
			s.guard(s.read)
			run()
			return
		}
	}
}

// lost leaves because nothing more can be read.
func (s *server) lost(err error) {
	d := departure{code: codeClosed, why: "the control stream closed", grace: s.leaveGrace()}
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
		d.code, d.why = codeBroken, "the control stream broke: "+err.Error()
	}
	s.leave(d)
}

// frame serves one frame. What it returns is a command to run, or nil. An error
// ends the conversation.
func (s *server) frame(f wire.Frame) (run func(), err error) {
	switch f.Type {
	case wire.Ping:
		var m wire.PingMessage
		if err := f.Decode(&m); err != nil {
			return nil, err
		}
		s.watch.ping(time.Now())
		select {
		case <-s.pongs: // the client has waited long enough for a newer one
		default:
		}
		s.pongs <- m
	case wire.Start:
		return s.start(f)
	case wire.Environ:
		return nil, s.environment(f)
	case wire.Literals:
		var m wire.LiteralsMessage
		if err := f.Decode(&m); err != nil {
			return nil, err
		}
		s.guard(func() { s.net.addLiterals(m.Literals) })
	case wire.End:
		var m wire.EndMessage
		if err := f.Decode(&m); err != nil {
			return nil, err
		}
		stream := f.Stream
		s.guard(func() {
			_ = s.out.Message(wire.Ended, stream, wire.EndedMessage{Left: s.end(m.Grace)})
		})
	case wire.Quit:
		var m wire.EndMessage
		if err := f.Decode(&m); err != nil {
			return nil, err
		}
		s.leave(departure{code: codeQuit, grace: m.Grace})
	default:
		if f.Stream&wire.OfGuest != 0 {
			return nil, s.net.streams.Route(f, receiver.frame)
		}
		return nil, s.streams.Route(f, receiver.frame)
	}
	return nil, nil
}

// answerPings sends pongs, which may block when the client does not read.
func (s *server) answerPings() {
	for m := range s.pongs {
		_ = s.out.Message(wire.Pong, 0, m)
	}
}

// start takes a command, which the caller runs.
func (s *server) start(f wire.Frame) (run func(), err error) {
	var m wire.StartMessage
	if err := f.Decode(&m); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.streams.Next(f.Stream); err != nil {
		return nil, err
	}
	if s.closing {
		return nil, nil
	}
	if m.File != nil {
		s.startFile(f.Stream, m)
		return nil, nil
	}
	c := newCommand(s, f.Stream, m)
	for _, o := range under[*command](s) {
		if !o.isOver() {
			o.mixed.Store(true)
			c.mixed.Store(true)
		}
	}
	s.streams.Put(f.Stream, c)
	if m.Session != "" && !m.Fork && m.TTY == nil {
		// Here and not in the goroutine, so that turns come in the order of
		// the requests.
		c.shell = s.session(m.Session)
		c.turn = c.shell.enqueue()
	}
	s.running.Add(1)
	return func() {
		defer s.running.Done()
		c.serve()
		s.streams.Remove(f.Stream)
	}, nil
}

// under returns the streams of one kind that are under way.
func under[R receiver](s *server) (out []R) {
	for _, r := range s.streams.All() {
		if one, ok := r.(R); ok {
			out = append(out, one)
		}
	}
	return out
}

// end ends all commands and all that they left behind, and returns how many
// processes could not be killed.
func (s *server) end(grace time.Duration) (left int) {
	var all sync.WaitGroup
	for _, c := range under[*command](s) {
		all.Go(func() { c.endMain(grace) })
	}
	all.Go(func() { s.abandonFiles(killWait) })
	all.Wait()
	return s.killAll()
}

// killAll kills everything below the guest.
func (s *server) killAll() (left int) {
	return killTree(s.ownNS.Load(), func(all []proc) []proc { return below(all, os.Getpid()) }, killWait)
}
