package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"berth/internal/link/session"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// endGrace is between TERM and KILL when a command is ended by a timeout or an
// interrupt.
const endGrace = 2 * time.Second

// room is where commands run: an environment, or the place of a job that runs.
type room interface {
	// again runs do in the session. If the session is broken and do had no effect,
	// it opens a new session, where possible, and runs do again.
	again(ctx context.Context, noStart bool, do func(*session.Session) error) error
	variables(own []string) []string // of a command
	takeNotes() []string             // of an opening, once
	broken(err error) error          // explains a conversation that ended
	kept() (dir, name string)        // where captured output is kept whole
}

// commands runs commands in a room, in the session of this name.
type commands struct {
	room room
	name string
}

// Session is a conversation with an environment that has its own directory,
// variables, functions, aliases and options.
type Session struct {
	commands
	env *Environment
}

// Lengths are compared apart: a bounded repetition costs every start of the
// program half a millisecond.
var sessionName = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._:@-]*$`)

// Session returns the session of this name; "" is the one that all clients
// share who name none. It begins with its first command.
func (v *Environment) Session(name string) (*Session, error) {
	if name == "" {
		name = jobs.DefaultSession
	}
	if len(name) > 128 || !sessionName().MatchString(name) {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name a session", name),
			Hint: "letters, digits and ._:@-, at most 128"}
	}
	return &Session{commands{v, name}, v}, nil
}

func (v *Environment) kept() (dir, name string) { return v.e.outputs(), v.Spec.Name }

// ExecRequest is a command for a session.
type ExecRequest struct {
	Command jobs.Command
	Dir     string   // where to run it; "" is the session's directory
	Env     []string // NAME=VALUE for this command only; secrets come this way
	// Timeout ends the command so long after it began; 0 is
	// [jobs.DefaultTimeout], negative is never.
	Timeout time.Duration
	Stdin   io.Reader // nil is empty
	// Stdout and Stderr take the output as it comes; nil captures it.
	Stdout, Stderr io.Writer
	// Merge makes the command's stderr the same pipe as its stdout: Stdout takes
	// both, in the order in which they were written, and Stderr nothing.
	Merge bool
	// ShowBytes is how much of each captured stream is shown, in bytes, at most
	// [MostShown]; 0 is [ShownChars] characters.
	ShowBytes int
	// Fork runs the command beside the session, from a copy of its state.
	Fork bool
	// Waiting is called once when the command has to wait for its session; it
	// may be nil.
	Waiting func()
}

// ExecResult is how a command ended.
type ExecResult struct {
	Exit jobs.Exit
	// Code is what a shell would show: the command's own, 124 after a timeout,
	// 130 after an interrupt, 126 and 127 when it did not start.
	Code           int
	Stdout, Stderr Captured // of what was captured; with Merge all is in Stdout
	Dir            string   // of the session, after the command
	TimedOut       bool
	Interrupted    bool // ctx ended
	ShellEnded     bool // the command ended the session's shell; the next begins with the state before it
	Duration       time.Duration
	Notes          []string // of an environment that was opened for it, and of how the command was run
}

// variables puts a command's own variables over those that the environment
// forwards from this process's.
func (v *Environment) variables(own []string) []string {
	var out []string
	for _, name := range v.Spec.Forward {
		if value, ok := v.e.Getenv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	return append(out, own...)
}

// Exec runs a command in the session and waits for its end; commands of one
// session run one after the other. When ctx ends, the command and all that it
// has started is ended, and the result says so. An error means that berth or
// the environment failed; the command may then have run.
func (s *commands) Exec(ctx context.Context, req ExecRequest) (*ExecResult, error) {
	if err := req.Command.CheckLength(); err != nil {
		return nil, err
	}
	timeout := req.Timeout
	switch {
	case timeout == 0:
		timeout = jobs.DefaultTimeout
	case timeout < 0:
		timeout = 0
	}
	res := &ExecResult{}
	var outs [2]*Capture
	writers := [2]io.Writer{req.Stdout, req.Stderr}
	dir, room := s.room.kept()
	for i, name := range req.streams() {
		if writers[i] == nil {
			outs[i] = NewCapture(dir, room+"-"+name, req.ShowBytes)
			writers[i] = outs[i]
		}
	}
	begun := time.Now()
	var r session.Result
	interrupted := false
	var full []string
	err := s.room.again(ctx, false, func(link *session.Session) error {
		p, err := link.Start(session.StartRequest{
			Command: req.Command,
			Env:     s.room.variables(req.Env),
			Dir:     req.Dir,
			Stdin:   req.Stdin,
			Session: s.name,
			Fork:    req.Fork,
			Timeout: timeout,
			Grace:   endGrace,
			Merge:   req.Merge,
			Much:    req.Stdout != nil,
		}, writers[0], writers[1])
		if err != nil {
			return err
		}
		if req.Waiting != nil {
			go func() {
				select {
				case <-p.Begun():
				case <-time.After(time.Second):
					req.Waiting()
				}
			}()
		}
		r, interrupted, err = await(ctx, p)
		if err == nil && !r.Exit.OK() && !interrupted && !r.TimedOut {
			full = isFull(ctx, link)
		}
		return err
	})
	res.Notes = append(s.room.takeNotes(), full...)
	if r.Note != "" {
		res.Notes = append(res.Notes, r.Note)
	}
	for i, to := range []*Captured{&res.Stdout, &res.Stderr} {
		if outs[i] != nil {
			*to = outs[i].Done()
		}
	}
	if err != nil {
		return res, s.room.broken(err)
	}
	if r.Output != nil {
		return res, fmt.Errorf("pass the output on: %w", r.Output)
	}
	res.Exit, res.Dir, res.TimedOut, res.ShellEnded, res.Interrupted = r.Exit, r.Dir, r.TimedOut, r.ShellEnded, interrupted
	res.Code = r.Exit.Code
	switch {
	case r.TimedOut:
		res.Code = jobs.CodeTimeout
	case interrupted:
		res.Code = jobs.CodeInterrupted
	}
	if res.Duration = time.Since(begun); !r.Started.IsZero() && !r.Ended.IsZero() {
		res.Duration = r.Ended.Sub(r.Started)
	}
	return res, nil
}

// streams are the names of those that the command writes to.
func (r *ExecRequest) streams() []string {
	if r.Merge {
		return []string{"output"}
	}
	return []string{"stdout", "stderr"}
}

// isFull notes that the files of the place of a command that has failed have no
// more room.
func isFull(ctx context.Context, link *session.Session) []string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := link.Space(ctx, "/")
	if text := s.Full(); err == nil && text != "" {
		return []string{"no space: what its files stand on " + text + "; remove something there"}
	}
	return nil
}

// await waits for a command, and ends it with all that it has started when ctx
// ends.
func await(ctx context.Context, p *session.Process) (res session.Result, interrupted bool, err error) {
	ended := endOf(p)
	select {
	case a := <-ended:
		return a.res, false, a.err
	case <-ctx.Done():
	}
	err = p.Terminate(endGrace)
	select {
	case a := <-ended:
		return a.res, true, a.err
	case <-time.After(endGrace + 30*time.Second):
		return session.Result{}, true, errors.Join(errors.New("the command could not be ended in time"), err)
	}
}

// Size is a terminal's, in characters.
type Size = jobs.TerminalSize

// ShellRequest is a command, or an interactive shell, on a terminal.
type ShellRequest struct {
	Command jobs.Command // empty is an interactive shell
	Dir     string
	Env     []string // TERM among it
	Size    Size
	Resized <-chan Size // may be nil
	Stdin   io.Reader
	Stdout  io.Writer
}

// Shell runs a command on a terminal, beside the session: it begins with a copy
// of the session's directory, variables, functions and options. When ctx ends,
// it is ended.
func (s *commands) Shell(ctx context.Context, req ShellRequest) (*ExecResult, error) {
	var r session.Result
	interrupted := false
	err := s.room.again(ctx, false, func(link *session.Session) error {
		p, err := link.Start(session.StartRequest{
			Command: req.Command,
			Env:     s.room.variables(req.Env),
			Dir:     req.Dir,
			Stdin:   req.Stdin,
			Session: s.name,
			Fork:    true,
			TTY:     &req.Size,
			Grace:   endGrace,
		}, req.Stdout, nil)
		if err != nil {
			return err
		}
		over := make(chan struct{})
		defer close(over)
		if req.Resized != nil {
			go func() {
				for {
					select {
					case size := <-req.Resized:
						_ = p.Resize(size)
					case <-over:
						return
					}
				}
			}()
		}
		r, interrupted, err = await(ctx, p)
		return err
	})
	res := &ExecResult{Notes: s.room.takeNotes()}
	if r.Note != "" {
		res.Notes = append(res.Notes, r.Note)
	}
	if err != nil {
		return res, s.room.broken(err)
	}
	res.Exit, res.Code, res.Interrupted = r.Exit, r.Exit.Code, interrupted
	return res, nil
}
