package mux

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"berth/internal/link/wire"
	"berth/internal/node/keeper"
	"berth/internal/sys/run"
	"berth/internal/sys/socket"
	"berth/jobs"
)

// maxSetup bounds what a holder reads at its start: the words and variables of
// a command (execve(2)).
const maxSetup = 8 << 20

// HoldMain is `berth-node hold --env DIR`: the connection holder. Its standard
// input is one line that says what to start; its standard output takes reports
// of the start, as a keeper's does. See the package's documentation.
func HoldMain(args []string, stdin, stdout *os.File, stderr io.Writer) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	syscall.Umask(0o077)
	fs := flag.NewFlagSet("hold", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("env", "", "the environment's directory")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if *dir == "" || fs.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node hold --env DIR")
		return jobs.CodeUsage
	}
	debug.SetGCPercent(50)
	var s setup
	text, err := bufio.NewReader(io.LimitReader(stdin, maxSetup)).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && (len(s.Argv) == 0 || s.ID == "") {
		err = errors.New("no command is named")
	}
	if err != nil {
		_, _ = stdout.Write(line(refusal(&jobs.Error{Kind: jobs.KindUsage, Msg: "read what the connection consists of", Err: err})))
		return jobs.CodeUsage
	}
	h := &holder{link: Link{Dir: filepath.Clean(*dir), ID: s.ID}, setup: s, log: stderr, begun: make(chan struct{}), open: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	defer h.cancel(nil)
	go func() {
		for sig := range signals {
			if sig == syscall.SIGTERM || sig == syscall.SIGINT {
				h.stop("a signal (" + sig.String() + ")")
			}
		}
	}()
	if err := h.run(stdout); err != nil {
		_, _ = stdout.Write(line(refusal(err)))
		return jobs.CodeOf(err)
	}
	return 0
}

// holder keeps one link open.
type holder struct {
	link  Link
	setup setup
	log   io.Writer
	path  string

	begun chan struct{} // closed when mux is set
	open  chan struct{} // closed when its far side has answered, or err is set
	mux   *Mux
	rep   keeper.Report
	err   error

	ctx    context.Context // until it is to end
	cancel context.CancelCauseFunc
	ending sync.Once
	lock   *lock
	joins  sync.WaitGroup

	mu      sync.Mutex
	socket  *socket.Listener
	clients map[*os.File]bool
	since   time.Time // when the last client went
	closed  bool
	waiting map[chan string]bool
	told    string // last
}

func (h *holder) say(text string) {
	_, _ = fmt.Fprintf(h.log, "%s holder %d: %s\n", time.Now().UTC().Format(time.RFC3339), os.Getpid(), text)
}

func (h *holder) stop(why string) {
	h.ending.Do(func() {
		h.say("ending: " + why)
		h.cancel(&jobs.Error{Kind: jobs.KindAgain, Msg: "the holder of the connection was ended: " + why})
	})
}

// run opens the link, unless another holder has it, and serves clients. The
// error is of the opening.
func (h *holder) run(stdout *os.File) error {
	var err error
	if h.path, err = h.link.path(); err != nil {
		return err
	}
	if h.lock, err = h.take(stdout); err != nil || h.lock == nil {
		return err
	}
	defer h.lock.release()
	h.clients, h.waiting, h.since = map[*os.File]bool{}, map[chan string]bool{}, time.Now()
	// First what takes long.
	go h.connect()
	if h.socket, err = socket.Listen(h.path); err != nil {
		h.cancel(err)
		<-h.open
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "listen in " + filepath.Dir(h.path), Err: err}
	}
	go h.accept(h.socket)
	// Who has started it may ask now: its request is with the far side when that begins.
	_, _ = stdout.Write(line(answer{Report: progress(""), Listens: true}))
	news := h.subscribe()
	for opening := true; opening; {
		select {
		case text := <-news:
			_, _ = stdout.Write(line(progress(text)))
		case <-h.open:
			opening = false
		}
	}
	h.unsubscribe(news)
	if h.err == nil {
		_, _ = stdout.Write(line(answer{Report: h.rep}))
		h.say(fmt.Sprintf("open, over %s", h.mux.name))
		go sweepSpool(filepath.Join(h.link.Dir, dirSpool), time.Now())
		h.keep()
	}
	h.close()
	return h.err
}

// connect opens the link.
func (h *holder) connect() {
	defer close(h.open)
	mux, err := begin(h.ctx, run.Local{}, jobs.Cmd{Argv: h.setup.Argv, Dir: h.setup.Dir, Env: h.setup.Env},
		Options{Interval: h.setup.Interval, Progress: h.tell})
	if err != nil {
		h.err = err
		return
	}
	h.mux = mux
	close(h.begun)
	rep, err := mux.await(h.ctx)
	if err != nil {
		h.err = err
		return
	}
	h.rep = *rep
}

// keep serves clients until the link breaks, is not used any more, or is told
// to end.
func (h *holder) keep() {
	idle := h.setup.Idle
	if idle <= 0 {
		idle = defaultIdle
	}
	tick := time.NewTicker(min(idle/4+1, 10*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.mux.Gone():
			h.stop(fmt.Sprintf("%v", h.mux.Err()))
			return
		case <-tick.C:
			h.mu.Lock()
			unused := len(h.clients) == 0 && time.Since(h.since) >= idle
			h.mu.Unlock()
			if unused {
				h.stop("it is not used any more")
				return
			}
			h.relisten()
		}
	}
}

// relisten makes the socket again when its name is gone, as a keeper does.
func (h *holder) relisten() {
	if h.socket.Stands() {
		return
	}
	dir, err := socket.Dir()
	if err != nil {
		return
	}
	l, err := socket.Listen(filepath.Join(dir, filepath.Base(h.path)))
	if err != nil {
		return
	}
	h.mu.Lock()
	old := h.socket
	h.socket = l
	h.mu.Unlock()
	go h.accept(l)
	_ = old.Close()
}

// close gives up the place, so that another holder can have it at once, and
// ends what is left.
func (h *holder) close() {
	h.mu.Lock()
	h.closed = true
	l := h.socket
	all := h.clients
	h.clients = map[*os.File]bool{}
	h.mu.Unlock()
	l.Remove()
	h.lock.release()
	for c := l.Waiting(); c != nil; c = l.Waiting() {
		_ = c.Close()
	}
	_ = l.Close()
	if h.err != nil {
		h.joins.Wait() // they are told why
	}
	if h.mux != nil && h.mux.Err() == nil {
		// What the far side has said is still on its way.
		h.mux.t.Quit(answer{})
	}
	for c := range all {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
	if h.mux != nil {
		_ = h.mux.Close()
	}
	done := make(chan struct{})
	go func() {
		h.joins.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(endTime): // a client does not take what is left
	}
}

// tell passes on what takes long.
func (h *holder) tell(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = text
	for c := range h.waiting {
		select {
		case c <- text:
		default:
		}
	}
}

func (h *holder) subscribe() chan string {
	c := make(chan string, 16)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told != "" {
		c <- h.told
	}
	h.waiting[c] = true
	return c
}

func (h *holder) unsubscribe(c chan string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, c)
}

// accept serves whoever connects, until the socket is closed.
func (h *holder) accept(l *socket.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			h.mu.Lock()
			mine := h.socket == l && !h.closed
			h.mu.Unlock()
			if mine {
				h.stop("its socket failed: " + err.Error())
			}
			return
		}
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			_ = c.Close()
			return
		}
		h.clients[c] = true
		h.joins.Add(1)
		h.mu.Unlock()
		go func() {
			defer h.joins.Done()
			h.serve(c)
			h.mu.Lock()
			delete(h.clients, c)
			h.since = time.Now()
			h.mu.Unlock()
			_ = c.Close()
		}()
	}
}

// progress is the report of something that takes long.
func progress(text string) keeper.Report {
	return keeper.Report{Version: wire.Version, Progress: text}
}

// askTime is how long a client may take to say what it wants.
const askTime = 10 * time.Second

// serve does what a client asks for. One that comes when the opening has already failed
// gets no answer, and so begins an opening of its own: what it asks for may have changed.
func (h *holder) serve(c *os.File) {
	select {
	case <-h.open:
		if h.err != nil {
			return
		}
	default:
	}
	_ = c.SetReadDeadline(time.Now().Add(askTime))
	req, rest, err := readRequest(c)
	if err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	reply := func(a answer) { _, _ = c.Write(line(a)) }
	var s *stream
	switch req.Kind {
	case kindEnd:
		h.stop("told to")
		select {
		case <-h.lock.free:
			reply(opened())
		case <-time.After(askTime):
		}
		return
	default:
		if req.Kind == kindKeeper {
			s = h.ahead(req, rest)
		}
		if !h.await(c) {
			if s != nil {
				s.Terminate()
			}
			return
		}
	}
	if h.err != nil {
		reply(refusal(h.err))
		return
	}
	switch req.Kind {
	case kindWait:
		reply(answer{Report: h.rep})
	case kindKeeper, kindPipe:
		h.join(c, req, rest, s)
	default:
		reply(notOurs(req.Kind))
	}
}

// ahead sends a request for the keeper as soon as the far command has begun, so that it
// makes no way of its own to the far side. What the client has said behind it goes with
// it. Nil is that it could not be sent, and why is not known yet.
func (h *holder) ahead(req request, rest []byte) *stream {
	select {
	case <-h.begun:
	case <-h.open:
		if h.mux == nil {
			return nil
		}
	}
	s, err := h.mux.begin(req, rest)
	if err != nil {
		return nil
	}
	return s
}

// await waits until the link is open, and tells the client meanwhile what takes
// long. false is that the client has left.
func (h *holder) await(c *os.File) bool {
	select {
	case <-h.open:
		return true
	default:
	}
	news := h.subscribe()
	defer h.unsubscribe(news)
	tick := time.NewTicker(signOfLife)
	defer tick.Stop()
	for {
		select {
		case text := <-news:
			if _, err := c.Write(line(progress(text))); err != nil {
				return false
			}
		case <-tick.C:
			if _, err := c.Write(line(progress(""))); err != nil {
				return false
			}
		case <-h.open:
			return true
		}
	}
}

// join joins a client and a conversation with the far side, which s is that was asked for
// ahead, or nil.
func (h *holder) join(c *os.File, req request, rest []byte, s *stream) {
	if req.Kind == kindPipe {
		if err := h.mux.shares(h.ctx, h.link.Dir); err != nil {
			_, _ = c.Write(line(refusal(err)))
			return
		}
	}
	var a *answer
	var err error
	if s == nil {
		s, err = h.mux.begin(req, rest)
	}
	if err == nil {
		s, a, err = h.mux.answered(h.ctx, s)
	}
	if err != nil {
		if h.mux.Err() != nil && !errors.Is(err, keeper.ErrNotRunning) {
			return // nothing of it has begun: the client asks another holder
		}
		_, _ = c.Write(line(refusal(err)))
		return
	}
	defer s.Terminate()
	if _, err := c.Write(line(a)); err != nil {
		return
	}
	go func() {
		_ = s.Send(c)
		s.CloseWrite()
		if req.Kind == kindPipe {
			s.Terminate() // its client leaves when it has all it wants
		}
	}()
	_ = s.Drain(&untilBroken{w: c, broken: s.Terminate})
	// The far side is done, or its half is.
	socket.ShutWrite(c)
	<-s.Over()
}

// untilBroken tells the first failure of a writer.
type untilBroken struct {
	w      io.Writer
	broken func()
}

func (u *untilBroken) Write(p []byte) (int, error) {
	n, err := u.w.Write(p)
	if err != nil {
		u.broken()
	}
	return n, err
}

// readRequest reads a line, and what came behind it.
func readRequest(c io.Reader) (req request, rest []byte, err error) {
	const most = 64 << 10
	buf := make([]byte, 4<<10)
	var text []byte
	for {
		n, err := c.Read(buf)
		if err != nil {
			return req, nil, err
		}
		text = append(text, buf[:n]...)
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			return req, text[i+1:], json.Unmarshal(text[:i], &req)
		}
		if len(text) > most {
			return req, nil, errors.New("the request is too long")
		}
	}
}
