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
	"strings"
	"sync"
	"time"

	"berth/backends/external/protocol"
	"berth/internal/sys/run"
	"berth/jobs"
)

// caller starts the program of one backend for single requests.
type caller struct {
	name    string // NAME
	program []string
	env     []string
	on      jobs.Starter
	times   times
}

// times are how long a program may take; tests have shorter ones.
type times struct {
	verbs         map[string]time.Duration
	silent, leave time.Duration
}

func defaultTimes() times {
	return times{silent: protocol.SilentTime, leave: protocol.LeaveTime, verbs: map[string]time.Duration{
		protocol.VerbCheck: protocol.CheckTime, protocol.VerbOpen: protocol.OpenTime, protocol.VerbList: protocol.ListTime,
		protocol.VerbStop: protocol.StopTime, protocol.VerbDestroy: protocol.DestroyTime,
		protocol.VerbSnapshot: protocol.SnapshotTime, protocol.VerbRestore: protocol.OpenTime, protocol.VerbExec: protocol.ExecTime,
	}}
}

// ask has a request answered, and reads the answer into ok.
func (c *caller) ask(ctx context.Context, r protocol.Request, progress func(string), ok any) error {
	r.Berth, r.Backend = protocol.Version, c.name
	f, err := openRequest(&r)
	if err != nil {
		return err
	}
	defer f.Close()
	a := newAnswer(progress)
	said := &lastWords{}
	// It is killed when this function returns, with its group.
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	p, err := c.on.Start(running, jobs.Cmd{
		Argv:   append(c.program[:len(c.program):len(c.program)], r.Verb, requestPath),
		Dir:    "/",
		Env:    c.env,
		Files:  []*os.File{f},
		Stdout: a,
		Stderr: said,
	})
	if err != nil {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "start the program of the backend " + c.name, Err: err, Hint: c.look()}
	}
	ended := make(chan jobs.Exit, 1)
	go func() {
		e, _ := p.Wait()
		ended <- e
	}()
	exit, err := c.await(ctx, p, a, ended, r.Verb)
	if err != nil {
		kill()
		<-ended
	}
	raw, answered := a.get()
	switch {
	case answered != nil:
		err = c.told(r.Verb, answered)
	case err == nil && raw == nil:
		err = c.asked(r.Verb, fmt.Sprintf("it ended (%s) without an answer", exit), said.err())
	case err == nil:
		if derr := json.Unmarshal(raw, ok); derr != nil {
			err = c.lied("its answer to "+r.Verb+" cannot be understood", derr)
		}
	case raw != nil && errors.Is(err, errStays):
		if derr := json.Unmarshal(raw, ok); derr == nil {
			err = nil // it has answered, and would not leave
		}
	}
	return err
}

// errStays is a program that has answered and goes on running.
var errStays = errors.New("it did not leave after its answer")

// await waits for the end of the program, as long as it may take; with an error
// it has had its TERM, and is to be killed.
func (c *caller) await(ctx context.Context, p jobs.Process, a *answer, ended chan jobs.Exit, verb string) (jobs.Exit, error) {
	limit := c.times.verbs[verb]
	over := time.NewTimer(limit)
	defer over.Stop()
	quiet := time.NewTimer(c.times.silent)
	defer quiet.Stop()
	var why error
	for why == nil {
		select {
		case e := <-ended:
			return e, nil
		case <-ctx.Done():
			why = context.Cause(ctx)
		case <-over.C:
			why = c.asked(verb, fmt.Sprintf("it did not answer within %v", limit), nil)
		case <-quiet.C:
			why = c.asked(verb, fmt.Sprintf("it has said nothing for %v", c.times.silent), nil)
		case <-a.spoke:
			quiet.Reset(c.times.silent)
		case <-a.last:
			select {
			case e := <-ended:
				return e, nil
			case <-time.After(c.times.leave):
				why = errStays
			}
		}
	}
	_ = run.Terminate(p)
	select {
	case e := <-ended:
		ended <- e // for who waits after the kill
	case <-time.After(c.times.leave):
	}
	return jobs.Exit{}, why
}

// look is the hint for a program that does not work.
func (c *caller) look() string {
	return "is it the program of this backend, and of this version? " + c.program[0] + "; berth doctor looks at it"
}

// asked is the error for what a program does in place of an answer.
func (c *caller) asked(verb, what string, err error) error {
	return c.lied("asked to "+verb+", "+what, err)
}

// lied is the error for an answer that cannot be true.
func (c *caller) lied(what string, err error) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the backend " + c.name + ": " + what, Err: err, Hint: c.look()}
}

// told gives the error of a program its kind, and what it breaks of the
// protocol its hint.
func (c *caller) told(verb string, err error) error {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return c.asked(verb, err.Error(), nil)
	}
	out := &jobs.Error{Kind: kindOf(e.Kind), Msg: "the backend " + c.name + ": " + words(e.Message), Hint: words(e.Hint)}
	if words(e.Message) == "" {
		out.Msg = "the backend " + c.name + " failed (" + words(string(e.Kind)) + ")"
	}
	if out.Hint == "" {
		out.Hint = c.hint(e.Kind)
	}
	return out
}

// hint is what to do about an error of a kind, where the program says nothing.
func (c *caller) hint(k protocol.Kind) string {
	switch k {
	case protocol.Auth:
		return "is its key set? Variables that begin with " + Prefix(c.name) + " reach the program; berth doctor"
	case protocol.Quota:
		return "end what is not needed: berth env ls, berth env gc; or have the account's bounds raised"
	case protocol.Rate, protocol.Unreachable:
		return "try again in a moment"
	case protocol.Gone:
		return "the next command makes it again"
	case protocol.NotFound:
		return "is it called so at the service, and may this account use it?"
	case protocol.Conflict:
		return "look at the service whose it is; another name goes: --env NAME"
	case protocol.Unsupported:
		return "leave out what it does not have, or name another --backend; is it the program of this berth? " + c.program[0]
	case protocol.Input:
		return "see what the service takes, and correct the value"
	case protocol.Unclear:
		return "look at the service before it is tried again; berth env gc finds what is left behind"
	case protocol.Changed:
		return "remove it with its files, and it is made again: berth env rm NAME"
	}
	return c.look()
}

// kindOf is the kind of berth's for one of the protocol.
func kindOf(k protocol.Kind) jobs.Kind {
	switch k {
	case protocol.Auth:
		return jobs.KindAuth
	case protocol.Quota, protocol.Rate, protocol.Gone:
		return jobs.KindAgain
	case protocol.NotFound:
		return jobs.KindNotFound
	case protocol.Conflict, protocol.Changed, protocol.Unsupported:
		return jobs.KindConfig
	case protocol.Input:
		return jobs.KindUsage
	case protocol.Unclear:
		return jobs.KindUnclear
	case protocol.Unreachable, protocol.Internal:
	}
	return jobs.KindInfra
}

// words makes one printable line of another program's text.
func words(s string) string {
	s = strings.Join(strings.Fields(jobs.Printable(strings.ToValidUTF8(s, "?"))), " ")
	if len(s) > protocol.MaxText {
		s = strings.ToValidUTF8(s[:protocol.MaxText], "") + "..."
	}
	return s
}

// requestPath is what a program is told that its request is called: the first
// of [jobs.Cmd.Files].
const requestPath = "/dev/fd/3"

// openRequest writes a request into a file that has no name any more, so that
// nothing of it stays behind, whoever is killed when.
func openRequest(r *protocol.Request) (*os.File, error) {
	f, err := os.CreateTemp("", "berth-request-*.json")
	if err == nil {
		if err = os.Remove(f.Name()); err == nil {
			err = put(f, r)
		}
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			_ = f.Close()
		}
	}
	if err != nil {
		return nil, notWritten(r, os.TempDir(), err)
	}
	return f, nil
}

// writeRequest writes a request into a new file in dir that only this user can
// read, and returns its path. The caller or the program removes the file.
func writeRequest(dir string, r *protocol.Request) (string, error) {
	f, err := os.CreateTemp(dir, "berth-request-*.json") // its mode is 0600
	if err == nil {
		err = put(f, r)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}
	if err != nil {
		return "", notWritten(r, dir, err)
	}
	return filepath.Abs(f.Name())
}

func put(f *os.File, r *protocol.Request) error {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
	}
	return err
}

func notWritten(r *protocol.Request, dir string, err error) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "write a request for the backend " + r.Backend, Err: err, Hint: "is there space left? df -h " + dir}
}

// lastWords keeps the end of what a program says to people.
type lastWords struct {
	mu sync.Mutex
	b  []byte
}

const maxWords = 4096

func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, b[max(0, len(b)-maxWords):]...)
	if over := len(l.b) - maxWords; over > 0 {
		l.b = append(l.b[:0], l.b[over:]...)
	}
	return len(b), nil
}

func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.TrimSpace(l.b))
}

// err is the last lines of it as an error, or nil.
func (l *lastWords) err() error {
	lines := strings.Split(l.String(), "\n")
	text := words(strings.Join(lines[max(0, len(lines)-3):], " "))
	if text == "" {
		return nil
	}
	return errors.New(text)
}
