// Package provider is the program's side of the protocol of docs/backend-protocol.md:
// whoever writes a berth-backend-NAME in Go has the six verbs of [Provider] to
// write, and a main that calls [Main].
//
// Each process serves one request. A panic is answered as an error, a TERM ends
// the context, and what a provider returns that is no [protocol.Error] is
// answered as one of the kind "internal".
package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"berth/backends/external/protocol"
)

// Snapshotter is a [Provider] whose sandboxes can be kept as they are. [Main]
// finds that out, and says so in the answer of Check.
type Snapshotter interface {
	// Snapshot copies the files of the sandbox r.Ref, which runs, under the name
	// r.Snapshot, with r.Tags where the service has tags for that. A snapshot of
	// this name is [protocol.Conflict].
	Snapshot(ctx context.Context, r *protocol.Request, say Progress) (*protocol.Snapshot, error)
	// Restore makes the sandbox r.Name again, with the files of r.Snapshot. One
	// that stands is removed when the snapshot has been found.
	Restore(ctx context.Context, r *protocol.Request, say Progress) (*protocol.Restored, error)
	// Snapshots finds those whose names begin with r.Snapshot.
	Snapshots(ctx context.Context, r *protocol.Request, say Progress) ([]protocol.Snapshot, error)
	// Forget removes the snapshot r.Snapshot. One that is not there is no error.
	Forget(ctx context.Context, r *protocol.Request, say Progress) error
}

// Execer is a [Provider] that runs single commands. One whose service has
// nothing else says in Check that Stream is false.
type Execer interface {
	// Exec runs r.Argv in the sandbox r.Ref. Once that runs, or is about to, it
	// calls connected, and reads and writes what it returns from then on. When
	// ctx ends, so does the command.
	Exec(ctx context.Context, r *protocol.Request, connected func() (stdin io.Reader, stdout, stderr io.Writer)) (protocol.Exit, error)
}

// Progress tells a person what takes long. Each call is a sign of life: berth
// gives up on a program that is silent for [protocol.SilentTime].
type Progress func(format string, args ...any)

// Provider is a service that has sandboxes.
type Provider interface {
	// Check tells what the service can do, and that its key is good. It makes
	// nothing.
	Check(ctx context.Context, r *protocol.Request, say Progress) (*protocol.Checked, error)
	// Open finds the sandbox by its name and tags, or makes it, and puts the
	// guest program there. The one with the name and other tags is
	// [protocol.Conflict].
	Open(ctx context.Context, r *protocol.Request, say Progress) (*protocol.Opened, error)
	// Stream runs r.Argv in the sandbox r.Ref. Once it runs, it calls connected,
	// and from then on copies bytes as they are between that pair and the
	// command's standard input and output. When in ends, so does the command's
	// input. It returns the command's exit code when the command has ended; when
	// ctx ends it may return at once. The command's standard error goes to
	// os.Stderr.
	Stream(ctx context.Context, r *protocol.Request, connected func() (in io.Reader, out io.Writer)) (code int, err error)
	// List finds all sandboxes with r.Tags, stopped ones too.
	List(ctx context.Context, r *protocol.Request, say Progress) ([]protocol.Found, error)
	// Stop ends what costs; the files stay for the next Open. One that is not
	// there is no error.
	Stop(ctx context.Context, r *protocol.Request, say Progress) error
	// Destroy removes the sandbox with its files and snapshots, if it has
	// r.Tags. One that is not there is no error.
	Destroy(ctx context.Context, r *protocol.Request, say Progress) error
}

// Main serves the request that the arguments name, and returns the exit code:
// 0 when the answer was ok, that of the command after a stream.
func Main(p Provider) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return Serve(ctx, p, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// Exit codes of a program that has answered with an error, or could not read
// its request.
const (
	codeError = 1
	codeUsage = 2
)

// Serve is [Main] with its surroundings: args are the verb and the path of the
// request.
func Serve(ctx context.Context, p Provider, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) != 2 || !slices.Contains(protocol.Verbs(), args[0]) {
		_, _ = fmt.Fprintf(stderr, "usage: berth-backend-NAME %s REQUEST-FILE\nberth starts this program; see berth help backend-protocol\n",
			strings.Join(protocol.Verbs(), "|"))
		return codeUsage
	}
	a := &answerer{w: stdout, people: stderr}
	r, err := read(args[0], args[1])
	if err != nil {
		return a.fail(err)
	}
	return a.serve(ctx, p, r, stdin)
}

// read takes the request from its file.
func read(verb, path string) (*protocol.Request, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, protocol.Errorf(protocol.Internal, "read the request: %v", err)
	}
	var v struct{ Berth int }
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, protocol.Errorf(protocol.Internal, "the request is no JSON: %v", err)
	}
	if v.Berth != protocol.Version {
		return nil, &protocol.Error{Kind: protocol.Unsupported,
			Message: fmt.Sprintf("the request has version %d of the protocol, this program knows version %d", v.Berth, protocol.Version),
			Hint:    "install the program that belongs to this berth"}
	}
	r := &protocol.Request{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, protocol.Errorf(protocol.Internal, "the request cannot be understood: %v", err)
	}
	if r.Verb != verb {
		return nil, protocol.Errorf(protocol.Internal, "the request is for %q, and the argument is %q", r.Verb, verb)
	}
	return r, nil
}

// answerer writes lines, and nothing after the last one.
type answerer struct {
	mu     sync.Mutex
	w      io.Writer
	people io.Writer // takes what there is no line left for
	done   bool
}

func (a *answerer) line(l protocol.Line, last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		return
	}
	a.done = last
	b, err := json.Marshal(l)
	if err == nil && len(b) < protocol.MaxLine {
		_, _ = a.w.Write(append(b, '\n'))
	}
}

func (a *answerer) answered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done
}

func (a *answerer) say(format string, args ...any) {
	text := clip(fmt.Sprintf(format, args...))
	a.line(protocol.Line{Progress: &text}, false)
}

func (a *answerer) ok(v any) int {
	b, err := json.Marshal(v)
	if err != nil || len(b) > protocol.MaxLine-64 {
		return a.fail(protocol.Errorf(protocol.Internal, "the answer is too long"))
	}
	a.line(protocol.Line{OK: b}, true)
	return 0
}

func (a *answerer) fail(err error) int {
	var e *protocol.Error
	if !errors.As(err, &e) {
		e = protocol.Errorf(protocol.Internal, "%v", err)
		if errors.Is(err, context.Canceled) {
			e = protocol.Errorf(protocol.Unclear, "it was interrupted")
		}
	}
	c := *e
	c.Message, c.Hint = clip(c.Message), clip(c.Hint)
	if a.answered() {
		_, _ = fmt.Fprintln(a.people, c.Message)
		return codeError
	}
	a.line(protocol.Line{Error: &c}, true)
	return codeError
}

// clip bounds a text, and makes one line of it.
func clip(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > protocol.MaxText {
		s = strings.ToValidUTF8(s[:protocol.MaxText-3], "") + "..."
	}
	return s
}

func (a *answerer) serve(ctx context.Context, p Provider, r *protocol.Request, stdin io.Reader) (code int) {
	defer func() {
		if v := recover(); v != nil {
			code = a.fail(protocol.Errorf(protocol.Internal, "the program has a defect: %v", v))
		}
	}()
	var answer any
	var err error
	switch r.Verb {
	case protocol.VerbCheck:
		var c *protocol.Checked
		if c, err = p.Check(ctx, r, a.say); err == nil {
			_, c.Snapshots = p.(Snapshotter)
			_, c.Exec = p.(Execer)
		}
		answer = c
	case protocol.VerbOpen:
		answer, err = p.Open(ctx, r, a.say)
	case protocol.VerbList:
		var found []protocol.Found
		if found, err = p.List(ctx, r, a.say); found == nil {
			found = []protocol.Found{}
		}
		l := protocol.Listed{Found: found}
		if s, ok := p.(Snapshotter); ok && err == nil && r.Snapshot != "" {
			l.Snapshots, err = s.Snapshots(ctx, r, a.say)
		}
		answer = l
	case protocol.VerbStop:
		answer, err = struct{}{}, p.Stop(ctx, r, a.say)
	case protocol.VerbDestroy:
		answer, err = struct{}{}, destroy(ctx, p, r, a.say)
	case protocol.VerbSnapshot, protocol.VerbRestore:
		answer, err = keep(ctx, p, r, a.say)
	case protocol.VerbExec:
		return a.exec(ctx, p, r, stdin)
	case protocol.VerbStream:
		if code, err = p.Stream(ctx, r, func() (io.Reader, io.Writer) {
			a.ok(struct{}{})
			return stdin, a.w
		}); err == nil && !a.answered() {
			err = protocol.Errorf(protocol.Internal, "the program has a defect: its stream ended before it was connected")
		}
		if err == nil {
			return code
		}
	}
	if err != nil {
		return a.fail(err)
	}
	return a.ok(answer)
}
