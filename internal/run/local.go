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
// process's environment. When ctx ends, the group is killed with SIGKILL.
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.OwnMounts {
		if err := ownMounts(cmd.SysProcAttr); err != nil {
			return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
		}
		defer dumpable()()
	}

	p := &process{cmd: cmd, done: make(chan struct{})}
	var childEnds []*os.File // closed here once the child has them
	fail := func(err error) (jobs.Process, error) {
		for _, f := range childEnds {
			_ = f.Close()
		}
		for _, f := range p.ownEnds {
			_ = f.Close()
		}
		return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}

	output := func(w io.Writer) (io.Writer, error) {
		if w == nil {
			return nil, nil
		}
		if f, ok := w.(*os.File); ok {
			return f, nil
		}
		r, pw, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		childEnds, p.ownEnds = append(childEnds, pw), append(p.ownEnds, r)
		d := NewDrain(r)
		p.drains = append(p.drains, d)
		p.copies = append(p.copies, func() { _ = d.Copy(w) })
		return pw, nil
	}
	// One writer for both streams gets one pipe, as with os/exec: two copies
	// at a time would be a data race in most writers.
	var err error
	if cmd.Stdout, err = output(c.Stdout); err != nil {
		return fail(err)
	}
	if c.Stderr != nil && sameWriter(c.Stderr, c.Stdout) {
		cmd.Stderr = cmd.Stdout
	} else if cmd.Stderr, err = output(c.Stderr); err != nil {
		return fail(err)
	}
	if f, ok := c.Stdin.(*os.File); ok {
		cmd.Stdin = f
	} else if c.Stdin != nil {
		r, pw, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		childEnds, p.ownEnds = append(childEnds, r), append(p.ownEnds, pw)
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
	for _, f := range childEnds {
		_ = f.Close()
	}
	go p.watch(ctx)
	return p, nil
}

// sameWriter compares two writers whose types may not be comparable.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	return a == b
}

// process is a command started by Local.
type process struct {
	cmd     *exec.Cmd
	stdin   *os.File // our end, or nil
	ownEnds []*os.File
	drains  []*Drain
	copies  []func()

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
			_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		case <-gone:
		}
	}()
	err := p.cmd.Wait()
	close(gone)
	<-killed
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
