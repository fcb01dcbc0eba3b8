package guest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"berth/internal/link/wire"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// command is one command: its main process, its channels and its end.
type command struct {
	s      *server
	stream uint32
	msg    wire.StartMessage
	mark   string // NAME=VALUE in its environment, by which its orphans are known

	shell *shell        // whose process evaluates it, or nil
	turn  chan struct{} // of the shell
	note  string        // for people, once it has ended

	unmade bool // it had no room

	prompt, stdin  *wire.Inbox
	stdout, stderr *wire.Sender
	report         *wire.Sender  // or nil
	terminal       *os.File      // the guest's side, or nil; set before it begins
	ended          chan struct{} // closed when the main process has ended, or did not start
	delivered      chan struct{} // closed when the last order is; of the reading goroutine

	stop    chan struct{}  // closed when it must not start any more
	killing sync.WaitGroup // what ends it and all that it has started
	mixed   atomic.Bool    // another one was under way at the same time

	mu       sync.Mutex
	pid      int   // 0 until it runs
	warm     *warm // what evaluates it, or nil
	over     bool
	stopped  bool // stop is closed
	timedOut bool
	unpinged bool // the guest has ended it, because no ping came
	timer    *time.Timer
	looking  *time.Timer          // at the memory that it has
	most     int64                // that it had at a look, bytes
	tooMuch  bool                 // and was killed for that
	telling  *time.Timer          // of the message that it has begun
	deadline time.Time            // of timer
	since    uint64               // when it began, in ticks
	before   map[int]bool         // processes of the shell that are from before, though their times do not tell
	started  bool                 // early is delivered
	early    []wire.SignalMessage // what came before it began
}

func newCommand(s *server, stream uint32, m wire.StartMessage) *command {
	m.Dir = wire.Text(s.place.inHome(string(m.Dir)))
	c := &command{
		s: s, stream: stream, msg: m, mark: newMark(), ended: make(chan struct{}), stop: make(chan struct{}), since: ticks(),
		stdout: wire.NewSender(s.out, wire.Stdout, stream), stderr: wire.NewSender(s.out, wire.Stderr, stream),
	}
	if m.Report != "" {
		c.report = wire.NewSender(s.out, wire.Report, stream)
	}
	switch {
	case m.Prompt:
		c.prompt = wire.NewInbox(wire.Stdin)
	case m.Stdin || m.TTY != nil:
		c.stdin = wire.NewInbox(wire.Stdin)
	}
	return c
}

// serve does what the request asks for.
func (c *command) serve() {
	if c.shell != nil {
		c.evaluate()
	} else {
		c.run()
	}
}

// frame serves a frame for this command. It must not block.
func (c *command) frame(f wire.Frame) error {
	switch f.Type {
	case wire.PromptData:
		if c.prompt != nil {
			return c.prompt.Put(f.Payload)
		}
	case wire.Stdin:
		if c.stdin != nil {
			return c.stdin.Put(f.Payload)
		}
	case wire.Credit:
		return wire.Granted(f, c.stdout, c.stderr, c.report)
	case wire.Divert:
		var m wire.DivertMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		c.s.guard(func() {
			if to := openPast(m.Out, unix.O_WRONLY); to != nil {
				c.stdout.Follow(to)
			}
		})
	case wire.Resize:
		var m wire.Size
		if err := f.Decode(&m); err != nil {
			return err
		}
		c.order(func() { c.resize(m) })
	case wire.Signal:
		var m wire.SignalMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		c.order(func() { c.signal(m) })
	case wire.Terminate:
		var m wire.EndMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		c.order(func() { c.s.guard(func() { c.terminate(m.Grace) }) })
	}
	return nil
}

// order runs f when what the client ordered before is delivered: a stop that
// overtook its terminate would keep the command from taking it. Only the
// reading goroutine calls it, and does not wait.
func (c *command) order(f func()) {
	before, done := c.delivered, make(chan struct{})
	c.delivered = done
	c.s.guard(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		f()
	})
}

// fail tells that the command did not start.
func (c *command) fail(e jobs.Exit) {
	c.finish()
	c.close()
	exit := wire.ExitMessage{Exit: e}
	c.mu.Lock()
	exit.Unpinged, exit.NoRoom = c.unpinged, c.unmade
	c.mu.Unlock()
	if c.msg.Session != "" {
		exit.Dir = wire.Text(c.s.sessionDir(c.msg.Session))
	}
	_ = c.s.out.Message(wire.Exit, c.stream, exit)
	_, _ = c.stdout.Close(), c.stderr.Close()
	if c.report != nil {
		_ = c.report.Close()
	}
}

// run takes a command with a process of its own from its request to the end of
// its output.
func (c *command) run() {
	defer c.close()
	stdin, err := c.input()
	defer stdin.close()
	if err != nil {
		c.fail(*notStarted(codeCannot, "prepare the standard input: %v", err))
		return
	}
	if stdin.file != "" {
		c.msg.Env = append(c.msg.Env, wire.Text(promptVar+"="+stdin.file))
	}
	prog, no := c.program()
	if no != nil {
		c.fail(*no)
		return
	}
	defer prog.close()
	prog.env = append(prog.env, c.mark)
	rep, err := c.openReport(prog)
	defer func() { rep.close() }()
	if err != nil {
		err = fmt.Errorf("make a pipe for reports: %w", err)
		if prog.own != nil {
			c.fail(*c.noRoom(err))
			return
		}
		// It says nothing then, and runs.
		rep.close()
		rep = nil
		_ = c.report.Close()
		c.note = err.Error()
	}
	st, err := c.streams(stdin)
	if err != nil {
		c.fail(*notStarted(codeCannot, "%v", err))
		return
	}
	exit := wire.ExitMessage{Started: time.Now()} // it may have ended before fork returns
	reaped, err := c.fork(prog, st.child)
	closeAll(st.child)
	if err != nil {
		closeAll(st.ours)
		c.fail(c.refused(prog, err))
		return
	}
	if no := c.ownBegun(prog.own); no != nil {
		<-reaped
		closeAll(st.ours)
		c.fail(*no)
		return
	}
	c.begun(exit.Started)
	c.deliverEarly()
	stdin.feed(c)

	// Both streams at once, and the end is told without waiting for them.
	var draining sync.WaitGroup
	var drains []*run.Drain
	for i, f := range st.ours {
		d, to := run.NewDrain(f), []*wire.Sender{c.stdout, c.stderr}[i]
		drains = append(drains, d)
		draining.Go(func() {
			_ = d.Copy(to)
			_ = to.Close()
		})
	}
	if len(st.ours) == 1 {
		_ = c.stderr.Close()
	}
	if rep != nil {
		d := run.NewDrain(rep.ours)
		drains = append(drains, d)
		draining.Go(func() {
			_ = d.Copy(c.report)
			_ = c.report.Close()
		})
	}
	how := <-reaped
	prog.own.ended(&how)
	if c.msg.Left && !c.isStopped() {
		exit.Left = c.left()
	}
	c.finish()
	c.close()
	rep.release()
	prog.own.close()
	for _, d := range drains {
		d.Ended()
	}
	if c.stdin != nil {
		c.stdin.Fail()
	}
	exit.Exit, exit.Ended = exitOf(how.status), how.at
	exit.MaxRSS = jobs.Bytes(how.usage.Maxrss) * jobs.KiB
	if c.msg.Session != "" {
		exit.Dir = wire.Text(c.s.sessionDir(c.msg.Session))
	}
	exit.Note = c.note
	c.judge(&exit)
	_ = c.s.out.Message(wire.Exit, c.stream, exit)
	draining.Wait()
}

func exitOf(ws unix.WaitStatus) jobs.Exit {
	e := jobs.Exit{Started: true, Code: ws.ExitStatus()}
	if ws.Signaled() {
		e.Signal = int(ws.Signal())
		e.Code = 128 + e.Signal
	}
	return e
}

// fork starts the program in a session of its own.
func (c *command) fork(p *program, files []*os.File) (<-chan reaped, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errStopped
	}
	attr := &syscall.ProcAttr{Dir: p.dir, Env: p.env, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: c.terminal != nil}}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	if p.memo != nil {
		for len(attr.Files) < p.memoFD {
			attr.Files = append(attr.Files, ^uintptr(0))
		}
		attr.Files = append(attr.Files, p.memo.Fd())
	}
	c.since = ticks()
	pid, reaped, err := c.s.forkProgram(p, attr)
	if err != nil {
		return nil, err
	}
	c.pid = pid
	expendable(pid)
	return reaped, nil
}

// errStopped is a command that was ended before it began.
var errStopped = errors.New("ended before it began")

// expendable makes the kernel prefer the command over the guest and the runner
// when memory is short; its children inherit it.
func expendable(pid int) {
	const score = 500
	name := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
	if b, err := os.ReadFile(name); err == nil {
		var now int
		if _, err := fmt.Sscan(string(b), &now); err == nil && now >= score {
			return
		}
	}
	_ = os.WriteFile(name, []byte(strconv.Itoa(score)), 0)
}
