package ssh

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
)

// The scripts of /bin/sh that run a command. The outer one waits for it, so that
// it can tell a signal by 128+n, and an end with 255 from a link that broke, for
// which ssh exits with 255 too. $1 is a random word, $2
// the inner script, then its directory and the command follow. Signals go to the
// whole process group (sshd starts a session for each command), hence the trap.
//
// The inner one is a shell of its own because a signal that comes between the
// fork and the exec of a command would be lost in the outer one's trap. It says
// on both streams that it runs, on a line of its own, so that what a login shell
// prints is told apart. $1 is the word, $2 the process group, $3 the directory.
const (
	outer = `trap : HUP INT QUIT TERM USR1 USR2; n=$1; s=$2; shift 2; /bin/sh -c "$s" sh "$n" "$$" "$@"; r=$?; ` +
		`[ "$r" != 255 ] || printf '%s 255\n' "$n" >&2; exit "$r"`

	hello   = `printf '\n%s %s\n' "$1" "$2"; printf '\n%s\n' "$1" >&2; `
	readEnv = `for v in $(export -p | sed -n 's/^export \([A-Za-z_][A-Za-z0-9_]*\).*/\1/p;s/^declare -x \([A-Za-z_][A-Za-z0-9_]*\).*/\1/p'); ` +
		`do command unset -v "$v" 2>/dev/null; done; ` +
		`while IFS= read -r v && [ -n "$v" ]; do export "$v"; done; unset v; `
	runIt = `if [ -n "$3" ]; then cd "$3" || exit 126; fi; shift 3; exec "$@"`
)

// isName tells whether a shell can have a variable of this name.
func isName(s string) bool {
	for i, c := range []byte(s) {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// line returns what the login shell is to read for a command, and what has to
// stand before its standard input: its variables, one a line, which no command
// line and no other user ever sees. This is the only place where a command is
// quoted.
func line(c jobs.Cmd, nonce string) (words string, header []byte, err error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return "", nil, errors.New("start a command: no program is named")
	}
	for _, a := range append([]string{c.Dir}, c.Argv...) {
		if err := jobs.CheckText("a word of the command "+strconv.Quote(c.Argv[0]), a); err != nil {
			return "", nil, err
		}
	}
	script := hello
	if c.Env != nil {
		script += readEnv
		for _, v := range c.Env {
			if name, _, ok := strings.Cut(v, "="); !ok || !isName(name) || strings.ContainsAny(v, "\n\x00") {
				return "", nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the variable %q cannot be set over ssh", name),
					Hint: "its name has to be a word, and its value one line"}
			}
			header = append(append(header, v...), '\n')
		}
		header = append(header, '\n')
	}
	return viaSh(outer, append([]string{nonce, script + runIt, c.Dir}, c.Argv...)...), header, nil
}

// Start begins a command on the host and returns when it runs there, so that an
// error means that nothing was started. Its words must be free of control
// characters; Dir is a path there, "" its home; a nil Env is what a login
// there has. A signal, and the end of ctx as SIGKILL, goes to the command's
// whole process group. Wait's error says that the link broke and that
// the command's end is unknown.
func (h *Host) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	return h.start(ctx, c, true)
}

func (h *Host) start(ctx context.Context, c jobs.Cmd, batch bool) (jobs.Process, error) {
	if err := makePrivate(h.control); err != nil {
		return nil, err
	}
	nonce := "berth-" + rand.Text()
	words, header, err := line(c, nonce)
	if err != nil {
		return nil, err
	}
	own, kill := context.WithCancel(context.WithoutCancel(ctx))
	p := &process{h: h, began: make(chan struct{}), done: make(chan struct{}), kill: kill}
	if c.Stdout != nil && same(c.Stdout, c.Stderr) {
		both := &serial{w: c.Stdout}
		c.Stdout, c.Stderr = both, both
	}
	p.stdout = &begin{w: c.Stdout, word: []byte("\n" + nonce + " "), begun: p.begun}
	p.stderr = &begin{w: c.Stderr, word: []byte("\n" + nonce), end: []byte(nonce + " 255\n")}
	stdin := c.Stdin
	if header != nil {
		stdin = bytes.NewReader(header)
		if c.Stdin != nil {
			stdin = io.MultiReader(stdin, c.Stdin)
		}
	}
	p.local, err = h.b.On.Start(own, jobs.Cmd{Argv: h.call(batch, words), Env: h.b.Env, Stdin: stdin, Stdout: p.stdout, Stderr: p.stderr})
	if err != nil {
		kill()
		return nil, h.startFailed(err)
	}
	go p.watch()
	select {
	case <-p.began:
	case <-p.done:
		if !p.started() {
			return nil, p.neverBegan(ctx)
		}
	case <-ctx.Done():
		kill()
		<-p.done
		return nil, fmt.Errorf("start a command on %s: %w", h, context.Cause(ctx))
	}
	go func() {
		select {
		case <-ctx.Done():
			_ = p.Signal(syscall.SIGKILL)
			kill()
		case <-p.done:
		}
	}()
	return p, nil
}

// Local returns the command of this machine that runs a command on the host,
// with the environment of a login there and its streams joined, for who starts
// it later, or as another process. What a login prints stands before its output.
func (h *Host) Local(c jobs.Cmd) (jobs.Cmd, error) {
	if c.Env != nil || c.Dir != "" {
		return jobs.Cmd{}, errors.New("a command that is started later on a host has the environment and the directory of a login there")
	}
	for _, a := range c.Argv {
		if err := jobs.CheckText("a word of the command "+strconv.Quote(c.Argv[0]), a); err != nil {
			return jobs.Cmd{}, err
		}
	}
	return jobs.Cmd{Argv: h.call(true, viaSh(`exec "$@"`, c.Argv...)), Env: h.b.Env}, nil
}

// same compares two writers whose types may not be comparable.
func same(a, b io.Writer) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	return a == b
}

// serial is one writer for both streams.
type serial struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *serial) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// process is a command on the host.
type process struct {
	h              *Host
	local          jobs.Process
	stdout, stderr *begin
	began          chan struct{} // closed when the command runs
	kill           func()        // ends the ssh program

	mu     sync.Mutex
	pid    int // of its process group there
	killed bool

	done chan struct{} // closed when exit and err are set
	exit jobs.Exit
	err  error
}

func (p *process) begun(pid int) {
	p.mu.Lock()
	p.pid = pid
	p.mu.Unlock()
	close(p.began)
}

func (p *process) started() bool {
	select {
	case <-p.began:
		return true
	default:
		return false
	}
}

func (p *process) neverBegan(ctx context.Context) error {
	said := p.stderr.said() + " " + p.stdout.said()
	if p.err != nil {
		return p.err
	}
	if p.exit.Code == failed || p.exit.Signal != 0 {
		return p.h.explain(ctx, said)
	}
	return p.h.notOurs(p.exit, said)
}

// watch waits for the end.
func (p *process) watch() {
	defer close(p.done)
	p.exit, p.err = p.local.Wait()
	p.kill()
	if p.err != nil || !p.started() {
		return
	}
	p.stderr.flush()
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	switch {
	case p.exit.Code != failed && p.exit.Signal == 0, p.stderr.found():
	case killed: // the shell that waits for it went with it
		p.exit = jobs.Exit{Started: true, Code: 128 + int(syscall.SIGKILL), Signal: int(syscall.SIGKILL)}
	default:
		p.exit, p.err = jobs.Exit{}, p.h.broke(p.stderr.said())
	}
}

// signalTime bounds the delivery of a signal.
const signalTime = 20 * time.Second

// Signal delivers a signal to the command's process group; after its end it
// does nothing.
func (p *process) Signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	p.mu.Lock()
	pid := p.pid
	if sig == syscall.SIGKILL {
		p.killed = true
	}
	p.mu.Unlock()
	ctx, stop := context.WithTimeout(context.Background(), signalTime)
	defer stop()
	_, err := run.Output(ctx, direct{p.h}, jobs.Cmd{Argv: []string{viaSh(`kill -"$1" "-$2"`, strconv.Itoa(int(sig)), strconv.Itoa(pid))}})
	select {
	case <-p.done:
		return nil
	default:
	}
	if err != nil {
		return fmt.Errorf("signal a command on %s: %w", p.h, err)
	}
	return nil
}

// Wait waits for the command's end and its output.
func (p *process) Wait() (jobs.Exit, error) {
	<-p.done
	return p.exit, p.err
}

// Leave ends the ssh program of a command that [Host.Start] has begun, and says nothing over a
// link that may be dead: there the command's input and output end. The shared connection stays,
// as others may ride on it; ssh ends it when its host has not answered for 45 s.
func Leave(p jobs.Process) {
	if p, ok := p.(*process); ok {
		p.kill()
		<-p.done
	}
}

// direct starts what stands in Argv[0], a line for the login shell, as it is.
type direct struct{ h *Host }

func (d direct) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	c.Argv, c.Env = d.h.call(true, c.Argv[0]), d.h.b.Env
	return d.h.b.On.Start(ctx, c)
}
