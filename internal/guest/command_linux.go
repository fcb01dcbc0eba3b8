package guest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"berth/internal/guest/wire"
	"berth/internal/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// command is one command: its main process, its channels and its end.
type command struct {
	s      *server
	stream uint32
	msg    wire.StartMessage
	mark   string // NAME=VALUE in its environment, by which its orphans are known

	prompt, stdin  *wire.Inbox
	stdout, stderr *wire.Sender
	ended          chan struct{} // closed when the main process has ended, or did not start
	delivered      chan struct{} // closed when the last order is; of the reading goroutine

	mu      sync.Mutex
	pid     int  // 0 until it runs
	stopped bool // it must not start any more
}

func newCommand(s *server, stream uint32, m wire.StartMessage) *command {
	c := &command{
		s: s, stream: stream, msg: m, mark: newMark(), ended: make(chan struct{}),
		stdout: wire.NewSender(s.out, wire.Stdout, stream), stderr: wire.NewSender(s.out, wire.Stderr, stream),
	}
	if m.Prompt {
		c.prompt = wire.NewInbox()
	} else if m.Stdin {
		c.stdin = wire.NewInbox()
	}
	return c
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
		var m wire.CreditMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		switch m.Channel {
		case wire.Stdout:
			return c.stdout.Grant(m.Bytes)
		case wire.Stderr:
			return c.stderr.Grant(m.Bytes)
		}
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

// run takes the command from its request to the end of its output.
func (c *command) run() {
	var ended sync.Once
	end := func() { ended.Do(func() { close(c.ended) }) }
	defer end()
	exit := wire.ExitMessage{}
	fail := func(e jobs.Exit) {
		exit.Exit = e
		end()
		_ = c.s.out.Message(wire.Exit, c.stream, exit)
		_, _ = c.stdout.Close(), c.stderr.Close()
	}

	stdin, err := c.input()
	defer stdin.close()
	if err != nil {
		fail(*notStarted(codeCannot, "prepare the standard input: %v", err))
		return
	}
	if stdin.file != "" {
		c.msg.Env = append(c.msg.Env, wire.Text(promptVar+"="+stdin.file))
	}
	prog, no := c.s.place.resolve(c.msg)
	if no != nil {
		fail(*no)
		return
	}
	prog.env = append(prog.env, c.mark)

	outR, outW, err := pipe()
	if err != nil {
		fail(*notStarted(codeCannot, "make a pipe: %v", err))
		return
	}
	errR, errW, err := pipe()
	if err != nil {
		_, _ = outR.Close(), outW.Close()
		fail(*notStarted(codeCannot, "make a pipe: %v", err))
		return
	}
	exit.Started = time.Now()
	reaped, err := c.fork(prog, stdin.child, outW, errW)
	_, _ = outW.Close(), errW.Close()
	if err != nil {
		_, _ = outR.Close(), errR.Close()
		exit.Started = time.Time{}
		fail(refused(prog.argv[0], err))
		return
	}
	_ = c.s.out.Message(wire.Started, c.stream, wire.StartedMessage{Time: exit.Started})
	stdin.feed(c)

	// Both streams at once, and the end is told without waiting for them.
	var draining sync.WaitGroup
	drains := []*run.Drain{run.NewDrain(outR), run.NewDrain(errR)}
	for i, to := range []*wire.Sender{c.stdout, c.stderr} {
		draining.Go(func() {
			_ = drains[i].Copy(to)
			_ = to.Close()
		})
	}
	how := <-reaped
	end()
	for _, d := range drains {
		d.Ended()
	}
	if c.stdin != nil {
		c.stdin.Fail()
	}
	exit.Exit, exit.Ended = exitOf(how.status), how.at
	exit.MaxRSS = jobs.Bytes(how.usage.Maxrss) * jobs.KiB
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
func (c *command) fork(p *program, stdin, stdout, stderr *os.File) (<-chan reaped, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errStopped
	}
	pid, reaped, err := c.s.reaper.start(func() (int, error) {
		return run.Fork(p.path, p.argv, &syscall.ProcAttr{
			Dir: p.dir, Env: p.env,
			Files: []uintptr{stdin.Fd(), stdout.Fd(), stderr.Fd()},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	})
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

// pipe returns a pipe whose read end can be polled and whose write end blocks,
// as programs expect of their output.
func pipe() (r, w *os.File, err error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fd[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd[0]), "pipe"), os.NewFile(uintptr(fd[1]), "pipe"), nil
}
