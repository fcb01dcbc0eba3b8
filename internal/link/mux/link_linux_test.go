package mux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/node/keeper"
	"berth/internal/sys/socket"
	"berth/jobs"
)

// held reports whether a holder stands, whose link is open.
func (e *env) held(l Link) bool {
	e.t.Helper()
	c, _, err := l.Join(e.t.Context())
	if err != nil && !errors.Is(err, errNoHolder) {
		e.t.Error(err)
	}
	return err == nil && c.Close() == nil
}

func TestLink(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	l := e.link()
	if e.held(l) {
		t.Error("nobody has dialled")
	}
	if err := l.End(t.Context()); err != nil {
		t.Error(err)
	}
	c := e.dial(l, session.Options{})
	if out := c.sh("echo one"); out != "one\n" {
		t.Errorf("%q", out)
	}
	if !e.held(l) {
		t.Error("it does not stand")
	}
	holder := e.one("\x00hold\x00")
	// Nothing of the far command is in the holder's words or variables.
	for _, f := range []string{"cmdline", "environ"} {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", holder, f)); err != nil || strings.Contains(string(b), "--mux") || strings.Contains(string(b), "HOME="+e.tmp) {
			t.Errorf("%q, %v", b, err)
		}
	}
	// The next one starts nothing.
	l.Command = func(context.Context) (jobs.Cmd, error) { return jobs.Cmd{}, errors.New("it is asked for") }
	d := e.dial(l, session.Options{})
	if out := d.sh("head -c 3000000 /dev/zero | wc -c"); out != "3000000\n" {
		t.Errorf("%q", out)
	}
	if e.one("\x00hold\x00") != holder {
		t.Error("another holder")
	}
	if err := l.End(t.Context()); err != nil {
		t.Error(err)
	}
	soon(t, "a session's end", c.Gone())
	soon(t, "the other session's end", d.Gone())
	if e.held(l) {
		t.Error("it was ended")
	}
	if _, _, err := l.Dial(t.Context()); err == nil || err.Error() != "it is asked for" {
		t.Error(err)
	}
	// The keeper goes on.
	if out := e.dial(e.link(), session.Options{}).sh("echo two"); out != "two\n" {
		t.Errorf("%q", out)
	}
}

// Many who come at once share one far command.
func TestTogether(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	var asked atomic.Int32
	l := e.link()
	l.Command = func(context.Context) (jobs.Cmd, error) {
		asked.Add(1)
		return e.far(), nil
	}
	var all sync.WaitGroup
	var conns [20]*conn
	for i := range conns {
		all.Go(func() {
			conns[i] = e.dial(l, session.Options{})
			if out := conns[i].sh(fmt.Sprint("echo ", i)); out != fmt.Sprint(i, "\n") {
				t.Errorf("%q", out)
			}
		})
	}
	all.Wait()
	if far := len(e.processes("--mux")); far != 1 {
		t.Errorf("%d far commands, asked %d times", far, asked.Load())
	}
	// Those that were started in between have found the first one, and leave.
	eventually(t, "there is one holder", func() bool { return len(e.processes("\x00hold\x00")) == 1 })
	// They all know when it dies.
	if err := syscall.Kill(e.one("--mux"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, c := range conns {
		soon(t, "a session's end", c.Gone())
	}
	if out := e.dial(l, session.Options{}).sh("echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
}

// A holder that hangs is not waited for beyond what the caller has.
func TestHolderFrozen(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	l := e.link()
	e.dial(l, session.Options{})
	pid := e.one("\x00hold\x00")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	eventually(t, "it is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && bytes.Contains(stat, []byte(") T "))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := l.Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	// The far side takes it for dead.
	eventually(t, "the far side leaves", func() bool { return len(e.processes("--mux")) == 0 })
}

// A holder that was killed is replaced, and its far side leaves.
func TestHolderKilled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	l := e.link()
	c := e.dial(l, session.Options{})
	far := e.one("--mux")
	if err := syscall.Kill(e.one("\x00hold\x00"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	soon(t, "the session's end", c.Gone())
	if out := e.dial(l, session.Options{}).sh("echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
	eventually(t, "the first far side leaves", func() bool {
		all := e.processes("--mux")
		return len(all) == 1 && all[0] != far
	})
}

// No one uses it: it ends, and what is connected keeps it.
func TestIdle(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	l := e.link()
	l.Idle = 2 * time.Second
	c := e.dial(l, session.Options{})
	time.Sleep(2 * l.Idle)
	if out := c.sh("echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
	_ = c.Close()
	eventually(t, "it ends", func() bool { return len(e.processes("\x00hold\x00")) == 0 && len(e.processes("--mux")) == 0 })
}

// What the far side says of an end comes through the holder.
func TestLinkKeeperEnds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := e.link()
	if _, _, err := l.Dial(t.Context()); !errors.Is(err, keeper.ErrNotRunning) {
		t.Error(err)
	}
	e.keep()
	c := e.dial(l, session.Options{})
	c.stop()
	if _, _, err := l.Dial(t.Context()); !errors.Is(err, keeper.ErrNotRunning) {
		t.Error(err)
	}
	eventually(t, "the holder ends", func() bool { return len(e.processes("\x00hold\x00")) == 0 })
	l.Command = func(context.Context) (jobs.Cmd, error) {
		return jobs.Cmd{Argv: []string{"sh", "-c", "echo no such allocation >&2; exit 1"}}, nil
	}
	if _, _, err := l.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "no such allocation") {
		t.Error(err)
	}
	l.Command = func(context.Context) (jobs.Cmd, error) { return jobs.Cmd{}, nil }
	if _, _, err := l.Dial(t.Context()); jobs.KindOf(err) != jobs.KindUsage {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	l.Command = func(context.Context) (jobs.Cmd, error) { return e.far("--wait", "1m"), nil }
	if _, _, err := l.Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	// Someone else waits for the same one, is told so, and it can be ended.
	told, done := make(chan string, 100), make(chan error, 1)
	l.Progress = func(text string) { told <- text }
	go func() {
		_, _, err := l.Dial(t.Context())
		done <- err
	}()
	if said := soon(t, "what it waits for", told); !strings.Contains(said, "waiting") {
		t.Errorf("%q", said)
	}
	if err := l.End(t.Context()); err != nil {
		t.Error(err)
	}
	if err := soon(t, "the end of a wait", done); err == nil || !strings.Contains(err.Error(), "told to") {
		t.Error(err)
	}
}

// A client that does not read, one that says nothing and one that says nonsense
// hold up no one.
func TestBadClients(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	l := e.link()
	c := e.dial(l, session.Options{})
	path, err := l.path()
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{"", "nonsense\n", `{"kind":"what"}` + "\n", `{"kind":"pipe"}` + "\n", `{"kind":"pipe","pipe":{"dir":"../x","spool":"../../y"}}` + "\n", strings.Repeat("x", 100<<10)} {
		f, err := socket.Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(f, said)
		if said != "" {
			b, _ := io.ReadAll(f)
			if strings.Contains(string(b), `"ready":true`) {
				t.Errorf("%q: %q", said, b)
			}
		}
		defer func() { _ = f.Close() }()
	}
	rw, _, err := l.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rw.Close() }()
	r, w := io.Pipe() // no one reads it
	s, err := session.Open(t.Context(), rw, rw, session.Options{PingTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Start(session.StartRequest{Command: jobs.Command{Shell: "cat /dev/zero"}}, w, nil); err != nil {
		t.Fatal(err)
	}
	if out := c.sh("head -c 3000000 /dev/zero | wc -c"); out != "3000000\n" {
		t.Errorf("%q", out)
	}
	_ = r.Close()
}

// The socket of a user who logs out is removed: a client then starts another
// holder, unless the first has repaired it.
func TestSocketGone(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	l := e.link()
	l.Idle = 3 * time.Second // it looks after itself each quarter of that
	c := e.dial(l, session.Options{})
	path, err := l.path()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if out := e.dial(l, session.Options{}).sh("echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
	if out := c.sh("echo y"); out != "y\n" {
		t.Errorf("%q", out)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	// Whoever was started in between has found the first one, and leaves.
	eventually(t, "there is one holder", func() bool { return len(e.processes("\x00hold\x00")) == 1 })
}

func TestHoldUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"--env", "x", "y"}, {"--what"}} {
		var said strings.Builder
		if code := HoldMain(args, nil, nil, &said); code != jobs.CodeUsage || !strings.Contains(said.String(), "-env") {
			t.Errorf("exit %d: %s", code, said.String())
		}
	}
	log := filepath.Join(t.TempDir(), "log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if code := HoldMain([]string{"--env", "/x"}, null, out, io.Discard); code != jobs.CodeUsage {
		t.Errorf("exit %d", code)
	}
	if b, _ := os.ReadFile(log); !strings.Contains(string(b), `"error":"read what`) {
		t.Errorf("%s", b)
	}
}
