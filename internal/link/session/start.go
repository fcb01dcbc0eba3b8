package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"berth/internal/link/wire"
)

// Start begins a command. It does not wait until the command runs: that it
// could not be started is told by Wait, as an Exit with Started false. A nil
// writer discards; the two must not be the same one unless it is safe for
// concurrent use.
func (s *Session) Start(req StartRequest, stdout, stderr io.Writer) (*Process, error) {
	text, words := req.Command.Shell != "", len(req.Command.Argv) > 0
	if text && words || !text && !words && req.TTY == nil && req.Port == 0 {
		return nil, errors.New("start a command: exactly one of an argv and a shell text is needed")
	}
	if req.Report != "" && req.Session != "" {
		return nil, errors.New("start a command: one of a session has no pipe for reports")
	}
	m := wire.StartMessage{
		Shell: wire.Text(req.Command.Shell), Argv: wire.Texts(req.Command.Argv), Env: wire.Texts(req.Env), Port: req.Port,
		Dir: wire.Text(req.Dir), Prompt: req.Prompt != nil,
		Session: req.Session, Fork: req.Fork, TTY: req.TTY, Merge: req.Merge, Own: req.Own, Left: req.Left, Report: wire.Text(req.Report),
		MaxMemory: max(req.MaxMemory, 0), Timeout: max(req.Timeout, 0), Grace: setting(req.Grace, defaultGrace),
	}
	if req.Merge {
		stdout = together(stdout)
		stderr = stdout
	}
	if req.Port != 0 {
		// A guest that knows no ports must not take this for an interactive shell.
		m.Argv = wire.Texts([]string{"berth-of-this-environment-forwards-no-ports"})
	}
	from := req.Stdin
	if m.Prompt {
		from = bytes.NewReader(req.Prompt)
	}
	return s.do(m, from, outputs{stdout, stderr, req.Reports}, req.Much && req.TTY == nil && stdout != nil && s.pipes != nil, nil, nil)
}

// together makes one writer fit for both streams, which is safe for concurrent use.
func together(w io.Writer) io.Writer {
	if _, file := w.(*os.File); w == nil || file {
		return w
	}
	return &locked{w: w}
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// Do sends any request and serves its channels: what stdin holds goes to the
// other side, and what that says goes to stdout. It is for requests that are
// not commands: the guest's operations on files and those of a keeper.
func (s *Session) Do(m wire.StartMessage, stdin io.Reader, stdout io.Writer) (*Process, error) {
	var out, in *pipe
	if m.File != nil && stdout != nil {
		var inside string
		out, inside = s.newPipe(false)
		m.Out = wire.Text(inside)
	}
	if m.File != nil && stdin != nil {
		var inside string
		in, inside = s.newPipe(true)
		m.In = wire.Text(inside)
	}
	return s.do(m, stdin, outputs{stdout: stdout}, false, out, in)
}

// outputs take what a command writes; nil discards.
type outputs struct{ stdout, stderr, report io.Writer }

func (s *Session) do(m wire.StartMessage, from io.Reader, to outputs, much bool, out, in *pipe) (*Process, error) {
	m.Stdin = !m.Prompt && from != nil
	s.starting.Lock()
	defer s.starting.Unlock()
	p, err := register(s, func(stream uint32) *Process { return newProcess(s, stream, to, m.Report != "", much, out, in) })
	if err != nil {
		out.close()
		in.close()
		return nil, fmt.Errorf("%w: %w", ErrAgain, err)
	}
	// Before the frame goes out: its answer may come at once.
	if m.Prompt {
		p.input = wire.NewSender(s.out, wire.PromptData, p.stream)
	} else if m.Stdin {
		p.input = wire.NewSender(s.out, wire.Stdin, p.stream)
	}
	if err := s.out.Message(wire.Start, p.stream, m); err != nil {
		s.streams.Remove(p.stream)
		p.lose()
		if err = startError(err); errors.Is(err, ErrGuestGone) {
			err = fmt.Errorf("%w: %w", ErrAgain, err)
		}
		return nil, err
	}
	p.send(from, m.File == nil && m.Keep == nil && !m.Prompt)
	return p, nil
}

func startError(err error) error {
	if errors.Is(err, wire.ErrTooLong) {
		return fmt.Errorf("start a command: its text, words and variables are too long, or the environment was opened by an older berth: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrGuestGone, err)
}
