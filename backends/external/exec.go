package external

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"berth/backends/external/protocol"
	"berth/internal/sys/run"
	"berth/jobs"
)

var _ jobs.Oncer = (*Backend)(nil)

// Exec runs a command in the environment's sandbox, which is opened where there
// is none. It is given again only where the program says that it did not run.
func (b *Backend) Exec(ctx context.Context, s *jobs.EnvSpec, o jobs.Once) (exit jobs.Exit, notes []string, err error) {
	dir := filepath.Join(s.Home, "envs", s.Name)
	c, err := b.of(s, b.On)
	if err != nil {
		return exit, nil, err
	}
	m, err := Load(dir)
	if err == nil && m == nil {
		notes, err = b.OpenOnce(ctx, s, o)
	}
	for try := 1; err == nil; try++ {
		r := request(protocol.VerbExec, s, dir)
		r.Argv = o.Argv
		limited, stop := ctx, context.CancelFunc(func() {})
		if o.Limit > 0 {
			limited, stop = context.WithTimeoutCause(ctx, o.Limit, jobs.ErrOnceTimeout)
		}
		exit, err = c.exec(limited, r, o)
		stop()
		if exit.Error != "" {
			notes = append(notes, exit.Error)
		}
		var no *notBegunError
		if !errors.As(err, &no) || no.kind != protocol.Gone || try == 2 {
			return exit, notes, err
		}
		notes, err = b.OpenOnce(ctx, s, o)
	}
	return exit, notes, err
}

// OpenOnce finds or makes the sandbox of an environment without streams.
func (b *Backend) OpenOnce(ctx context.Context, s *jobs.EnvSpec, o jobs.Once) ([]string, error) {
	c, err := b.of(s, b.On)
	if err != nil {
		return nil, err
	}
	release, err := o.Hold()
	if err != nil {
		return nil, err
	}
	defer release()
	_, t, err := c.open(ctx, s, filepath.Join(s.Home, "envs", s.Name), nil, o.Progress)
	if t.rebuilt != "" {
		t.notes = append(t.notes, t.rebuilt)
	}
	return t.notes, err
}

// notBegunError is the program's own word that a command did not run.
type notBegunError struct {
	kind protocol.Kind
	err  error
}

func (e *notBegunError) Error() string { return e.err.Error() }
func (e *notBegunError) Unwrap() error { return e.err }

// exec runs a command, once.
func (c *caller) exec(ctx context.Context, r protocol.Request, o jobs.Once) (out jobs.Exit, err error) {
	r.Berth, r.Backend = protocol.Version, c.name
	f, err := openRequest(&r)
	if err != nil {
		return out, err
	}
	defer f.Close()
	a := newAnswer(o.Progress)
	var end *protocol.Exit
	exited := make(chan struct{})
	a.more = func(line []byte) (err error) {
		if end != nil {
			return errors.New("it went on after the command's exit: " + excerpt(line))
		}
		if end, err = execLine(line, o.Stdout, o.Stderr); end != nil && err == nil {
			close(exited)
		}
		return err
	}
	said := &lastWords{}
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	p, err := c.on.Start(running, jobs.Cmd{
		Argv:   append(c.program[:len(c.program):len(c.program)], r.Verb, requestPath),
		Dir:    "/",
		Env:    c.env,
		Files:  []*os.File{f},
		Stdin:  o.Stdin,
		Stdout: a,
		Stderr: said,
	})
	if err != nil {
		return out, &jobs.Error{Kind: jobs.KindConfig, Msg: "start the program of the backend " + c.name, Err: err, Hint: c.look()}
	}
	ended := make(chan jobs.Exit, 1)
	go func() {
		e, _ := p.Wait()
		ended <- e
	}()
	if err = c.awaitExec(ctx, p, a, exited, ended); err != nil {
		kill()
		<-ended
	}
	raw, broken := a.get()
	if out.Started = a.began(); end != nil {
		if out.Code, out.Signal = end.Code, end.Signal; end.Signal != 0 {
			out.Code = 128 + end.Signal
		}
	}
	var no *protocol.Error
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		// What it says after its TERM is of that TERM. What it says of the command stays.
		if errors.As(broken, &no) && no.Kind != protocol.Unclear {
			out.Error = "the command did not run: " + c.told(r.Verb, no).Error()
		} else if !out.Started {
			out.Error = "the backend " + c.name + " has not said whether the command began; it may have run"
		}
		return out, err
	case errors.As(broken, &no):
		return out, &notBegunError{no.Kind, c.told(r.Verb, no)}
	case broken != nil && errors.Is(broken, errPass):
		return out, broken
	case broken != nil:
		return out, c.told(r.Verb, broken)
	case raw != nil && end != nil:
		return out, nil
	case err != nil:
		return out, err
	}
	return out, &jobs.Error{Kind: jobs.KindUnclear, Msg: "the backend " + c.name + ": asked to exec, it ended and did not say how the command has",
		Err: said.err(), Hint: "the command may have run; look before it is given again"}
}

// errPass is that the output has no reader any more.
var errPass = errors.New("pass the output on")

// execLine takes a line of a command that runs.
func execLine(line []byte, stdout, stderr io.Writer) (*protocol.Exit, error) {
	var x protocol.ExecLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	n := 0
	err := d.Decode(&x)
	for _, is := range []bool{x.Stdout != nil, x.Stderr != nil, x.Exit != nil} {
		if is {
			n++
		}
	}
	if err != nil || n != 1 {
		return nil, errors.New("it wrote a line that is none of an exec's: " + excerpt(line))
	}
	for _, part := range []struct {
		b  []byte
		to io.Writer
	}{{x.Stdout, stdout}, {x.Stderr, stderr}} {
		if _, err := part.to.Write(part.b); err != nil {
			return nil, fmt.Errorf("%w: %w", errPass, err)
		}
	}
	if e := x.Exit; e != nil && (e.Code < 0 || e.Code > 255 || e.Signal < 0 || e.Signal > 64) {
		return nil, fmt.Errorf("it says exit code %d and signal %d", e.Code, e.Signal)
	}
	return x.Exit, nil
}

// awaitExec waits for the first answer as long as it may take, and then for the
// program's end. With an error it has had its TERM, and is to be killed.
func (c *caller) awaitExec(ctx context.Context, p jobs.Process, a *answer, exited <-chan struct{}, ended chan jobs.Exit) error {
	over := time.NewTimer(c.times.verbs[protocol.VerbExec])
	defer over.Stop()
	last := a.last
	for {
		var why error
		select {
		case e := <-ended:
			ended <- e
			return nil
		case <-ctx.Done():
			why = context.Cause(ctx)
		case <-over.C:
			why = c.asked(protocol.VerbExec, fmt.Sprintf("it did not begin the command within %v", c.times.verbs[protocol.VerbExec]), nil)
		case <-a.spoke:
			continue
		case <-last:
			over.Stop()
			last = nil
			if _, err := a.get(); err == nil {
				continue
			}
			why = errStays // it did not begin, and has nothing more to do
		case <-a.over: // it has broken the protocol
			why = errStays
		case <-exited:
			why = errStays
		}
		if errors.Is(why, errStays) {
			select {
			case e := <-ended:
				ended <- e
				return nil
			case <-time.After(c.times.leave):
			}
		}
		_ = run.Terminate(p)
		select {
		case e := <-ended:
			ended <- e
		case <-time.After(c.times.leave):
		}
		return why
	}
}
