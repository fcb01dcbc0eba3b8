package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// MaxOutput bounds what [Output] keeps: no program that berth asks has more to
// say, and a program that has lost its mind must not take our memory.
const MaxOutput = 64 << 20

// maxTail bounds the end of the standard error that an [Error] carries.
const maxTail = 4 << 10

// Error is a command that ran and did not end with 0.
type Error struct {
	Argv   []string
	Exit   jobs.Exit
	Stderr string // its last lines, trimmed
	Err    error  // why it was killed: the context's cause, or too much output; else nil
}

// Error names the command, how it ended and what it said last.
func (e *Error) Error() string {
	s := brief(e.Argv) + ": "
	if e.Err != nil {
		s += e.Err.Error()
	} else {
		s += e.Exit.String()
	}
	if e.Stderr != "" {
		s += ": " + ending(e.Stderr)
	}
	return s
}

// Unwrap returns why the command was killed, or nil.
func (e *Error) Unwrap() error { return e.Err }

// brief shortens a command line for a message.
func brief(argv []string) string {
	const most = 120
	s := strings.Join(argv, " ")
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return s
}

// ending puts the last words of the standard error on one line.
func ending(stderr string) string {
	const most = 500
	s := strings.Join(strings.Fields(stderr), " ")
	if r := []rune(s); len(r) > most {
		s = "..." + string(r[len(r)-most:])
	}
	return s
}

var errTooMuch = fmt.Errorf("wrote more than %v to its standard output", jobs.Bytes(MaxOutput))

// Output runs a command to its end and returns what it wrote to its standard
// output, whose receiver in c is not used. When the command did not end with
// 0, or wrote more than [MaxOutput], the error is an [*Error] and what was
// written so far is returned with it. The standard error goes to c.Stderr, if
// any, and its last lines into the error.
func Output(ctx context.Context, on jobs.Starter, c jobs.Cmd) ([]byte, error) {
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	out := &bounded{most: MaxOutput, over: func() { kill(errTooMuch) }}
	last := &tail{most: maxTail}
	c.Stdout = out
	if c.Stderr != nil {
		c.Stderr = io.MultiWriter(last, c.Stderr)
	} else {
		c.Stderr = last
	}
	p, err := on.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	exit, err := p.Wait()
	if err != nil {
		return out.buf.Bytes(), err
	}
	if exit.OK() && !out.full {
		return out.buf.Bytes(), nil
	}
	failed := &Error{Argv: c.Argv, Exit: exit, Stderr: last.String()}
	if out.full {
		failed.Err = errTooMuch
	} else if exit.Signal != 0 {
		failed.Err = context.Cause(ctx) // nil when ctx did not end it
	}
	return out.buf.Bytes(), failed
}

// Logged runs a command to its end, with both its streams to c.Stderr, one line
// after the other. The error is an [*Error] with the last lines of them when it
// did not end with 0.
func Logged(ctx context.Context, on jobs.Starter, c jobs.Cmd) error {
	last := &tail{most: maxTail}
	c.Stderr = io.MultiWriter(last, c.Stderr)
	c.Stdout = c.Stderr
	p, err := on.Start(ctx, c)
	if err != nil {
		return err
	}
	exit, err := p.Wait()
	if err != nil || exit.OK() {
		return err
	}
	failed := &Error{Argv: c.Argv, Exit: exit, Stderr: last.String()}
	if exit.Signal != 0 {
		failed.Err = context.Cause(ctx)
	}
	return failed
}

// bounded keeps the first bytes written to it and calls over when there are
// more than it may keep.
type bounded struct {
	buf  bytes.Buffer
	most int
	full bool
	over func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.most - b.buf.Len(); len(p) > room {
		b.buf.Write(p[:room])
		b.full = true
		b.over()
		return room, errors.New("output limit reached")
	}
	return b.buf.Write(p)
}

// tail keeps the last bytes written to it.
type tail struct {
	buf  []byte
	most int
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.most; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
		t.cut = true
	}
	return len(p), nil
}

// String returns whole lines where it can, without invalid UTF-8.
func (t *tail) String() string {
	b := t.buf
	if t.cut {
		if i := bytes.IndexByte(b, '\n'); i >= 0 && i+1 < len(b) {
			b = b[i+1:]
		}
	}
	return LastWords(strings.ToValidUTF8(string(b), "\uFFFD"))
}

var progress = pattern.Lazy(`^\[[-=\\/| ]+\][ 0-9/%.]*`)

// LastWords is a text as its reader saw it in the end: without what a program has
// written over, and without the progress bars that it has left.
func LastWords(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		line = line[strings.LastIndexByte(line, '\r')+1:]
		if bare := strings.TrimSpace(line); progress().MatchString(bare) {
			if line = progress().ReplaceAllString(bare, ""); line == "" {
				continue
			}
		}
		kept = append(kept, line)
	}
	return strings.TrimSpace(strings.Join(kept, "\n"))
}
