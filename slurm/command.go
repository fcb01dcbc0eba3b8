package slurm

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"strings"
	"time"

	"berth/jobs"
	"berth/slurm/site"
)

// output is how a Slurm command ended.
type output struct {
	argv   []string
	stdout string
	stderr string
	exit   jobs.Exit
}

// ok tells whether the command ran and was content.
func (o output) ok() bool { return o.exit.OK() }

// notThere tells whether the program does not exist in that place: a remote
// shell says 127, a local start fails.
func (o output) notThere() bool { return !o.exit.Started || o.exit.Code == 127 }

// failure is the error of a query whose command was not content.
func (o output) failure() error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: o.argv[0] + " failed (" + o.exit.String() + "): " + lastLines(o.stderr, 3)}
}

// startError is that nothing was started at all.
type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// command runs one Slurm command to its end. A [startError] means that it did
// not run; any other error that its end is not known. extra is added to the
// cleaned environment.
func (s *Scheduler) command(ctx context.Context, timeout time.Duration, extra []string, argv ...string) (output, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	c := jobs.Cmd{Argv: argv, Stdout: &stdout, Stderr: &stderr}
	started := func() {}
	if s.cfg.Login == "" {
		c.Env = append(site.Environ(s.cfg.Environ), extra...)
	} else {
		c.Argv = inLogin(append([]string{"LC_ALL=C"}, extra...), argv)
		word := newGoAhead()
		defer word.drop()
		c.Stdin, started = word, word.give
	}
	s.cfg.Note(argv[0])
	p, err := s.on.Start(ctx, c)
	if err != nil {
		return output{}, &startError{err}
	}
	started()
	exit, err := p.Wait()
	out := output{argv: argv, stdout: stdout.String(), stderr: stderr.String(), exit: exit}
	if ctx.Err() != nil && (err != nil || !exit.OK()) {
		return out, context.Cause(ctx)
	}
	return out, err
}

// query runs a command that changes nothing and returns what it printed.
// Every failure is an error of kind infra.
func (s *Scheduler) query(ctx context.Context, argv ...string) (string, error) {
	if err := s.share().turn(ctx); err != nil {
		return "", err
	}
	return s.askNow(ctx, argv...)
}

// askNow is query for who has had the turn.
func (s *Scheduler) askNow(ctx context.Context, argv ...string) (string, error) {
	out, err := s.command(ctx, s.cfg.QueryTimeout, []string{"TZ=UTC"}, argv...)
	if err != nil {
		return "", s.infra(argv[0], err)
	}
	if !out.ok() {
		return "", s.withDownHint(out)
	}
	return out.stdout, nil
}

// withDownHint is the failure of a query, with the one hint that there is.
func (s *Scheduler) withDownHint(out output) error {
	e := &jobs.Error{Kind: jobs.KindInfra, Err: out.failure()}
	switch {
	case out.notThere():
		e.Msg, e.Err, e.Hint = out.argv[0]+" is not installed "+s.where(), nil, s.missingHint()
	case containsAny(out.stderr, controllerDown):
		e.Msg, e.Hint = "Slurm's controller does not answer", "try again later; see: scontrol ping"
	}
	return e
}

const missingHint = "Slurm's commands must be on PATH (on a cluster's login node they are); without a cluster: --scheduler local"

func (s *Scheduler) infra(program string, err error) error {
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: "could not run " + program, Err: err}
	var start *startError
	switch {
	case !errors.As(err, &start):
	case s.cfg.Login != "" && jobs.KindOf(err) != jobs.KindUnknown:
		e.Kind = jobs.KindOf(err) // why that machine could not be reached
	case missing(err):
		e.Msg, e.Err, e.Hint = program+" is not installed "+s.where(), nil, s.missingHint()
	}
	return e
}

func missing(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}

// lastLines returns the last n non-empty lines of s, joined for one line.
func lastLines(s string, n int) string {
	var lines []string
	for l := range strings.SplitSeq(s, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "; ")
}

func containsAny(s string, words []string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}
