package mux

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/trunk"
	"berth/internal/node/keeper"
	"berth/internal/sys/run"
	"berth/jobs"
)

func TestMux(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	m := e.mux(e.far())
	c, d := e.dial(m, session.Options{}), e.dial(m, session.Options{})
	if out := c.sh("echo one"); out != "one\n" {
		t.Errorf("%q", out)
	}
	// Many bytes, and all of them.
	if out := d.sh("head -c 3000000 /dev/zero | tr '\\0' x; echo y"); len(out) != 3000002 || strings.Trim(out[:3000000], "x") != "" {
		t.Errorf("%d bytes", len(out))
	}
	// A conversation ends alone.
	_ = c.Close()
	if out := d.sh("echo two"); out != "two\n" {
		t.Errorf("%q", out)
	}
	_ = m.Close()
	soon(t, "the session's end", d.Gone())
	if err := m.Err(); err == nil {
		t.Error("it is closed")
	}
	if _, _, err := m.Dial(t.Context()); err == nil {
		t.Error("a conversation over what is closed")
	}
}

// What a site prints before the first word is skipped, as lines of others on
// the standard error are.
func TestBanner(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	cmd := e.far()
	cmd.Argv = append([]string{"sh", "-c", `echo "Welcome to the cluster"; printf '\0berth-far\n\1\2'; echo "srun: a note" >&2; head -c 100000 /dev/urandom; exec "$@"`, "sh"}, cmd.Argv...)
	if out := e.dial(e.mux(cmd), session.Options{}).sh("echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
}

// What does not lead to a keeper is explained.
func TestNoWay(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for name, c := range map[string]struct {
		argv []string
		is   func(error) bool
	}{
		"no keeper":  {e.far().Argv, func(err error) bool { return errors.Is(err, keeper.ErrNotRunning) }},
		"no program": {[]string{"/does/not/exist"}, func(err error) bool { return strings.Contains(err.Error(), "/does/not/exist") }},
		"srun says no": {[]string{"sh", "-c", "echo 'srun: error: Invalid job id \033[2J specified' >&2; exit 3"}, func(err error) bool {
			return strings.Contains(err.Error(), "sh, exit code 3: srun: error: Invalid job id  [2J specified") && jobs.KindOf(err) == jobs.KindInfra
		}},
		"killed":     {[]string{"sh", "-c", "kill -9 $$"}, func(err error) bool { return strings.Contains(err.Error(), "signal 9") }},
		"another":    {[]string{"sh", "-c", "echo What do you want?; head -c 10 >/dev/null"}, func(err error) bool { return strings.Contains(err.Error(), "What do you want?") }},
		"endless":    {[]string{"sh", "-c", "yes"}, func(err error) bool { return strings.Contains(err.Error(), "no hello") }},
		"usage":      {[]string{e.self, "connect", "--mux"}, func(err error) bool { return strings.Contains(err.Error(), "usage: berth-node connect") }},
		"a relative": {[]string{e.self, "connect", "--mux", "--env", "x"}, func(err error) bool { return jobs.KindOf(err) == jobs.KindUsage }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := overCommand(t.Context(), run.Local{}, jobs.Cmd{Argv: c.argv, Env: e.environ()}, Options{})
			if err == nil || !c.is(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A keeper that has not begun yet is waited for, and said to be.
func TestWaits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	type opened struct {
		m   *Mux
		err error
	}
	done := make(chan opened, 1)
	said := make(chan string, 10)
	go func() {
		m, _, err := overCommand(t.Context(), run.Local{}, e.far("--wait", "30s"), Options{Progress: func(text string) { said <- text }})
		done <- opened{m, err}
	}()
	if text := soon(t, "progress", said); !strings.Contains(text, "waiting") {
		t.Error(text)
	}
	e.keep()
	o := soon(t, "the link", done)
	if o.err != nil {
		t.Fatal(o.err)
	}
	defer func() { _ = o.m.Close() }()
	if out := e.dial(o.m, session.Options{}).sh("echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
}

// A client that does not read holds up no one else.
func TestStalled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	m := e.mux(e.far())
	rw, _, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe() // no one reads it
	s, err := session.Open(t.Context(), rw, rw, session.Options{PingTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Start(session.StartRequest{Command: jobs.Command{Shell: "cat /dev/zero"}}, w, nil); err != nil {
		t.Fatal(err)
	}
	raw, _, err := m.Dial(t.Context()) // asks, and never reads the answer
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if out := e.dial(m, session.Options{}).sh(fmt.Sprintf("head -c 300000 /dev/zero | wc -c; echo %d", i)); out != fmt.Sprintf("300000\n%d\n", i) {
				t.Errorf("%q", out)
			}
		})
	}
	all.Wait()
	_ = r.Close()
}

// When the far command is killed, whoever talks over it knows at once.
func TestKilled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	m := e.mux(e.far())
	c := e.dial(m, session.Options{})
	p := c.start("exec sleep 4321", nil)
	// The end of an argument: the directory of the guest's program has a name of
	// random digits, in which the number may stand, too.
	const word = "4321\x00"
	eventually(t, "the command runs", func() bool { return len(e.processes(word)) == 1 })
	if err := syscall.Kill(e.one("--mux"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); !errors.Is(err, session.ErrGuestGone) {
		t.Error(err)
	}
	soon(t, "the link's end", m.Gone())
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Error(err)
	}
	// Its client's command is ended, the environment goes on.
	eventually(t, "the command ends", func() bool { return len(e.processes(word)) == 0 })
	if out := e.dial(e.mux(e.far()), session.Options{}).sh("echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
}

// A far side that is stopped is noticed, and so is a near side.
func TestFrozen(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	m := e.mux(e.far())
	c := e.dial(m, session.Options{})
	far := e.one("--mux")
	began := time.Now()
	if err := syscall.Kill(far, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	soon(t, "the session's end", c.Gone())
	if err := m.Err(); !errors.Is(err, trunk.ErrSilent) || time.Since(began) < 3*interval {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	soon(t, "the command's end", m.far.Ended)

	// srun's own death is not seen on the far side: nothing comes any more.
	r, w := io.Pipe()
	cmd := e.far()
	held := make(chan struct{})
	m2, _, err := overCommand(t.Context(), relayed{r: r, w: w, stop: held}, cmd, Options{Interval: interval})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m2.Close() }()
	e.dial(m2, session.Options{}).sh("echo x")
	close(held)
	eventually(t, "the far side leaves", func() bool { return len(e.processes("--mux")) == 0 })
	_ = w.Close()
}

// The end of the keeper is told, and the far side leaves.
func TestKeeperEnds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	m := e.mux(e.far())
	c, d := e.dial(m, session.Options{}), e.dial(m, session.Options{})
	c.stop()
	soon(t, "the other session's end", d.Gone())
	_, _, err := m.Dial(t.Context())
	if err == nil || !errors.Is(err, keeper.ErrNotRunning) {
		t.Error(err)
	}
	soon(t, "the link's end", m.Gone())
	if err := m.Err(); !errors.Is(err, keeper.ErrNotRunning) {
		t.Error(err)
	}
	soon(t, "the far command's end", m.far.Ended)
	if m.far.Exit.Code != 0 {
		t.Errorf("%+v", m.far.Exit)
	}
}

// The far side leaves by itself when the keeper has ended, though no one asks.
func TestKeeperGone(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	i := e.keep()
	m := e.mux(e.far())
	if err := syscall.Kill(i.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	soon(t, "the link's end", m.Gone())
	if err := m.Err(); !errors.Is(err, keeper.ErrNotRunning) {
		t.Error(err)
	}
}
