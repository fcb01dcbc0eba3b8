package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"berth/jobs"
)

// Local starts commands on this machine. Its zero value is ready.
type Local struct{}

var _ jobs.Starter = Local{}

// Start begins a command in a process group of its own; a nil Env is this
// process's environment. When ctx ends, the command is killed with SIGKILL, its
// group, and all that it has started: see endTree.
//
// A Stdin or Stdout that is an *os.File is handed to the command as it is.
// Other readers and writers are copied; a reader that blocks for ever keeps
// one goroutine for ever, as with os/exec, but never holds up Wait.
func (Local) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, errors.New("start a command: no program is named")
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = c.Env
	cmd.ExtraFiles = c.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.OwnMounts {
		if err := ownMounts(cmd.SysProcAttr); err != nil {
			return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
		}
		defer dumpable()()
	}
	open := func() error { return nil }
	if c.OwnFiles && os.Geteuid() != 0 {
		begin, done, err := ownFiles(cmd)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
		}
		open = begin
		defer done()
		defer dumpable()()
	}

	if c.OwnNetwork {
		if err := ownNetwork(cmd.SysProcAttr); err != nil {
			return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
		}
	}

	p := &process{cmd: cmd, done: make(chan struct{})}
	fail := func(err error) (jobs.Process, error) {
		for _, f := range p.childEnds {
			_ = f.Close()
		}
		for _, f := range p.ownEnds {
			_ = f.Close()
		}
		return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}

	if err := p.connect(cmd, c.Stdout, c.Stderr); err != nil {
		return fail(err)
	}
	if f, ok := c.Stdin.(*os.File); ok {
		cmd.Stdin = f
	} else if c.Stdin != nil {
		r, pw, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		p.childEnds, p.ownEnds = append(p.childEnds, r), append(p.ownEnds, pw)
		cmd.Stdin, p.stdin = r, pw
		go func() {
			// Begins at once, so that it may block in the reader; the writes
			// fail when the start does.
			_, _ = io.Copy(pw, c.Stdin)
			_ = pw.Close()
		}()
	}

	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	if err := open(); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fail(fmt.Errorf("give it the files of this user: %w", err))
	}
	for _, f := range p.childEnds {
		_ = f.Close()
	}
	go p.watch(ctx)
	return p, nil
}

// process is a command started by Local.
type process struct {
	cmd   *exec.Cmd
	stdin *os.File // our end, or nil
	outputs

	mu   sync.Mutex
	rest bool // what it leaves of its group is killed, see Terminate

	done chan struct{} // closed when exit and err are set
	exit jobs.Exit
	err  error
}

// watch waits for the end of the command and of its output.
func (p *process) watch(ctx context.Context) {
	var copying sync.WaitGroup
	for _, c := range p.copies {
		copying.Go(c)
	}
	gone := make(chan struct{})
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		select {
		case <-ctx.Done():
			endTree(p.cmd.Process.Pid)
		case <-gone:
		}
	}()
	// Its number is its own until it is waited for, and so long its group is
	// known by that.
	ended(p.cmd.Process.Pid)
	close(gone)
	<-killed
	p.endRest()
	err := p.cmd.Wait()
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
	for _, d := range p.drains {
		d.Ended()
	}
	copying.Wait()
	p.exit, p.err = exitOf(p.cmd, err)
	close(p.done)
}

// exitOf reads how the command ended.
func exitOf(cmd *exec.Cmd, err error) (jobs.Exit, error) {
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return jobs.Exit{}, fmt.Errorf("wait for %s: %w", cmd.Args[0], err)
	}
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return jobs.Exit{}, fmt.Errorf("wait for %s: no status", cmd.Args[0])
	}
	e := jobs.Exit{Started: true, Code: ws.ExitStatus()}
	if ws.Signaled() {
		e.Signal = int(ws.Signal())
		e.Code = 128 + e.Signal
	}
	return e, nil
}

// Signal delivers a signal to the command's main process, not to its group;
// after the end it does nothing.
func (p *process) Signal(sig syscall.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Wait waits for the end of the command and of its output.
func (p *process) Wait() (jobs.Exit, error) {
	<-p.done
	return p.exit, p.err
}
