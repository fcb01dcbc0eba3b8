package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"berth/internal/node/keeper"
	"berth/internal/sys/lease"
	"berth/jobs"
)

// oneShot reports whether the environment has no streams: each command is run by
// itself, and there is no keeper.
func (v *Environment) oneShot() bool { return v.Spec.External != nil && v.Spec.External.OneShot }

func (v *Environment) noStream() error {
	return &jobs.Error{Kind: jobs.KindConfig,
		Msg:  "the backend " + v.Spec.Backend + " runs single commands: it has no sessions, terminals, background processes and copied files",
		Hint: "berth exec --env " + v.Spec.Name + " -- COMMAND; with --stdin for what is to go in"}
}

// oncer returns the backend, and how it opens the environment.
func (v *Environment) oncer(ctx context.Context) (jobs.Oncer, jobs.Once, error) {
	b, err := v.e.backend(v.Spec.Backend)
	if err != nil {
		return nil, jobs.Once{}, err
	}
	o, ok := b.(jobs.Oncer)
	if !ok {
		return nil, jobs.Once{}, v.noStream()
	}
	return o, jobs.Once{Progress: v.Progress, Hold: func() (func(), error) { return v.holdOnce(ctx) }}, nil
}

// Times of holdOnce.
const (
	holdLook = 200 * time.Millisecond
	holdMost = 35 * time.Minute // an opening has 30
)

// holdOnce is [keeper.Hold], and waits for another process here that opens the
// environment or ends it, as whoever comes to a keeper does.
func (v *Environment) holdOnce(ctx context.Context) (func(), error) {
	over := time.Now().Add(holdMost)
	for told := false; ; told = true {
		release, err := keeper.Hold(v.dir, v.Spec.ID)
		var held *lease.HeldError
		if !errors.As(err, &held) || !held.Owner.Process().Near(lease.Self()) || time.Now().After(over) {
			return release, err
		}
		if !told && v.Progress != nil {
			v.Progress("another process is opening or ending it; waiting")
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(holdLook):
		}
	}
}

func (v *Environment) openOneShot(ctx context.Context) error {
	b, o, err := v.oncer(ctx)
	if err == nil {
		_, err = b.OpenOnce(ctx, &v.Spec, o)
	}
	return err
}

// OneShot runs single commands in an environment without streams.
type OneShot struct{ env *Environment }

// OneShot returns what runs single commands where there is nothing else; nil is
// that there are sessions.
func (v *Environment) OneShot() *OneShot {
	if !v.oneShot() {
		return nil
	}
	return &OneShot{v}
}

// Exec runs a command by itself, as that of a session.
func (x *OneShot) Exec(ctx context.Context, req ExecRequest) (*ExecResult, error) {
	v := x.env
	if len(req.Env)+len(v.Spec.Forward) > 0 {
		return nil, &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "the backend " + v.Spec.Backend + " runs single commands, and takes no variables whose values are not to be seen",
			Hint: "leave --var and --forward out; --set NAME=VALUE is for what is no secret"}
	}
	b, o, err := v.oncer(ctx)
	if err != nil {
		return nil, err
	}
	dir := req.Dir
	if dir == "" {
		dir = v.Spec.Dir
	}
	if len(req.Command.Shell) >= jobs.MaxArgument {
		if err := req.Command.CheckLength(); err != nil {
			return nil, err
		}
		if req.Stdin != nil {
			return nil, &jobs.Error{Kind: jobs.KindConfig,
				Msg: fmt.Sprintf("the backend %s takes a command of %d bytes or more by its standard input", v.Spec.Backend,
					jobs.MaxArgument),
				Hint: "leave --stdin out, or put the command into a file there"}
		}
		req.Stdin = strings.NewReader(req.Command.Shell)
		req.Command.Shell = `eval "$(cat)" </dev/null`
	}
	o.Argv = onceArgv(req.Command, dir, v.Spec.Env)
	if req.Merge {
		o.Argv = append([]string{"/bin/sh", "-c", `exec "$@" 2>&1`, "sh"}, o.Argv...)
	}
	o.Stdin, o.Stdout, o.Stderr = req.Stdin, req.Stdout, req.Stderr
	res := &ExecResult{}
	var outs [2]*Capture
	for i, name := range req.streams() {
		if w := []*io.Writer{&o.Stdout, &o.Stderr}[i]; *w == nil {
			outs[i] = NewCapture(v.e.outputs(), v.Spec.Name+"-"+name, req.ShowBytes)
			*w = outs[i]
		}
	}
	switch o.Limit = req.Timeout; {
	case o.Limit == 0:
		o.Limit = jobs.DefaultTimeout
	case o.Limit < 0:
		o.Limit = 0
	}
	begun := time.Now()
	res.Exit, res.Notes, err = b.Exec(ctx, &v.Spec, o)
	res.Duration = time.Since(begun)
	for i, to := range []*Captured{&res.Stdout, &res.Stderr} {
		if outs[i] != nil {
			*to = outs[i].Done()
		}
	}
	res.Notes = append(v.takeNotes(), res.Notes...)
	switch res.Code = res.Exit.Code; {
	case errors.Is(err, jobs.ErrOnceTimeout):
		res.TimedOut, res.Code, err = true, jobs.CodeTimeout, nil
	case err != nil && ctx.Err() != nil:
		res.Interrupted, res.Code, err = true, jobs.CodeInterrupted, nil
	}
	return res, err
}

// onceArgv is a command with its directory and the variables of the environment.
func onceArgv(c jobs.Command, dir string, env []string) []string {
	argv := c.Argv
	if c.Shell != "" {
		argv = []string{"/bin/sh", "-c", c.Shell}
	}
	if len(env) > 0 {
		argv = append(append([]string{"env"}, env...), argv...)
	}
	if rest, ok := strings.CutPrefix(dir, "~"); ok && (rest == "" || rest[0] == '/') {
		argv = append([]string{"/bin/sh", "-c", `cd -- "$HOME$0" || exit 126; exec "$@"`, rest}, argv...)
	} else if dir != "" {
		argv = append([]string{"/bin/sh", "-c", `cd -- "$0" || exit 126; exec "$@"`, dir}, argv...)
	}
	return argv
}
