//go:build linux

package session_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

func TestTerminateEndsTheTree(t *testing.T) {
	p := open(t, session.Options{})
	proc, pids := p.startNasty()
	began := time.Now()
	if err := proc.Terminate(300 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	res, err := wait(t, proc)
	if err != nil || res.Exit.Signal != 9 {
		t.Errorf("got %+v %v", res, err)
	}
	if d := time.Since(began); d < 300*time.Millisecond {
		t.Errorf("took %v", d)
	}
	deadSoon(t, pids...)
}

// TestLeft: what a command leaves running is told by name when it has ended by itself,
// and of a command that was ended nothing is told.
func TestLeft(t *testing.T) {
	p := open(t, session.Options{})
	left := func(text string) *jobs.LeftRunning {
		t.Helper()
		proc := p.start(session.StartRequest{Command: jobs.Command{Shell: text}, Left: true}, nil, nil)
		if text == "sleep 600" {
			_ = proc.Terminate(0)
		}
		res, err := wait(t, proc)
		if err != nil {
			t.Fatal(err)
		}
		return res.Left
	}
	if l := left("true"); l == nil || l.Count != 0 || len(l.Names) != 0 {
		t.Errorf("nothing is left: %+v", l)
	}
	if l := left("sleep 601 & (setsid sleep 602 &) ; sleep 1; exit 3"); l == nil || l.Count != 2 || !slices.Equal(l.Names, []string{"sleep", "sleep"}) {
		t.Errorf("two are left: %+v", l)
	}
	if l := left("sleep 600"); l != nil {
		t.Errorf("of one that was ended: %+v", l)
	}
	proc := p.start(session.StartRequest{Command: jobs.Command{Shell: "true"}}, nil, nil)
	if res, err := wait(t, proc); err != nil || res.Left != nil {
		t.Errorf("it was not asked for: %+v %v", res.Left, err)
	}
}

// TestTerminateSparesOthers ends one of two commands with what it has started.
func TestTerminateSparesOthers(t *testing.T) {
	p := open(t, session.Options{})
	a, one := p.startNasty()
	b, two := p.startNasty()
	if err := a.Terminate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := wait(t, a); err != nil {
		t.Fatal(err)
	}
	deadSoon(t, one[:2]...)
	for _, pid := range two {
		if !alive(pid) {
			t.Errorf("process %d of the other command is gone", pid)
		}
	}
	if err := b.Terminate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := wait(t, b); err != nil {
		t.Fatal(err)
	}
	// The last command takes with it what escaped from the first.
	deadSoon(t, append(one, two...)...)
}

func TestEndKeepsTheSession(t *testing.T) {
	t.Parallel()
	p := open(t, session.Options{})
	proc, pids := p.startNasty()
	var said buffer
	polite := p.start(shell("trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done"), &said, nil)
	eventually(t, "ready", func() bool { return said.String() != "" })
	if left, err := p.s.End(p.ctx, patience); left != 0 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
	dead(t, pids...) // End has waited for it
	if res, err := wait(t, proc); err != nil || res.Exit.Signal != 9 {
		t.Errorf("%+v %v", res, err)
	}
	if res, err := wait(t, polite); err != nil || res.Exit.Code != 5 {
		t.Errorf("%+v %v", res, err)
	}
	if _, out, _ := p.run(shell("echo next")); out != "next\n" {
		t.Errorf("got %q", out)
	}
}

// TestInputEnds closes the way to a guest, as the end of a job does: how the commands
// ended is told on the way back, of every one of them.
func TestInputEnds(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 2*hang)
	defer stop()
	p, r := launch(ctx, t, []string{os.Args[0]}, env(roleGuest))
	s, err := session.Open(ctx, r, p.in, session.Options{PingTimeout: -1, LeaveGrace: patience})
	if err != nil {
		t.Fatal(err)
	}
	p.s = s
	var all []*session.Process
	for range 20 {
		var said buffer
		all = append(all, p.start(shell("echo ready; exec sleep 304"), &said, nil))
		eventually(t, "ready", func() bool { return said.String() != "" })
	}
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	for i, proc := range all {
		if res, err := wait(t, proc); err != nil || res.Exit.Signal != int(unix.SIGTERM) {
			t.Errorf("%d: %+v %v", i, res.Exit, err)
		}
	}
	_, _ = p.proc.Wait()
}

// TestTerminateAtOnce ends commands that may not have begun yet, one by one and
// all together.
func TestTerminateAtOnce(t *testing.T) {
	p := open(t, session.Options{})
	var all []*session.Process
	for i := range 40 {
		req := shell("sleep 300")
		if i%2 == 0 {
			req.Prompt = make([]byte, i*20000)
		}
		proc := p.start(req, nil, nil)
		if i%4 < 2 {
			if err := proc.Terminate(0); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, proc)
	}
	if left, err := p.s.End(p.ctx, 0); left != 0 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
	for i, proc := range all {
		res, err := wait(t, proc)
		if e := res.Exit; err != nil || !(e.Started && e.Signal == 9) && !(!e.Started && e.Code == 126 && strings.Contains(e.Error, "ended before it began")) {
			t.Errorf("%d: %+v %v", i, e, err)
		}
	}
}

// TestBackground ends a command whose child goes on and holds the output,
// silent or not: the end must not wait for it.
func TestBackground(t *testing.T) {
	p := open(t, session.Options{})
	for name, text := range map[string]string{
		"silent":  "sleep 300 & echo pid $!; echo out; echo err >&2; exit 4",
		"talking": "(trap '' PIPE; while :; do echo x 2>/dev/null; sleep .01; done) & echo pid $!; echo err >&2; exit 4",
	} {
		res, out, errs := p.run(shell(text)) // much sooner than the child ends
		if res.Exit.Code != 4 || errs != "err\n" {
			t.Errorf("%s: %+v %q", name, res, errs)
		}
		_, after, _ := strings.Cut(out, "pid ")
		line, _, _ := strings.Cut(after, "\n")
		pid := numbers(t, line)[0]
		if left, err := p.s.End(p.ctx, 0); left != 0 || err != nil {
			t.Errorf("%s: end: %d %v", name, left, err)
		}
		dead(t, pid)
	}
}

// TestLeaves has the guest leave, with all that runs, for every reason.
func TestLeaves(t *testing.T) {
	t.Parallel()
	short := session.Options{LeaveGrace: 200 * time.Millisecond, PingTimeout: -1}
	silence := session.Options{LeaveGrace: 200 * time.Millisecond, PingTimeout: patience}
	for name, c := range map[string]struct {
		o    session.Options
		do   func(p *place)
		code int
		says string
	}{
		"quit":            {session.Options{PingTimeout: -1}, func(p *place) { _ = p.s.Quit(p.ctx) }, 0, ""},
		"closed":          {short, func(p *place) { _ = p.s.Close() }, 3, "closed"},
		"silence":         {silence, func(*place) {}, 4, "no ping"},
		"in mid-frame":    {short, func(p *place) { _, _ = p.in.Write([]byte{4, 0, 0}); _ = p.in.Close() }, 1, "unexpected EOF"},
		"huge frame":      {short, func(p *place) { _, _ = p.in.Write(bytes.Repeat([]byte{255}, 9)) }, 1, "too long"},
		"not a message":   {short, func(p *place) { _ = session.Send(p.s, wire.Start, 9, "text") }, 1, "read message"},
		"stream anew":     {short, func(p *place) { _ = session.Send(p.s, wire.Start, 1, nil) }, 1, "used before"},
		"forged":          {short, func(p *place) { _, _ = p.in.Write([]byte("\x04\x00\x00\x00\x02\x00\x00\x00\x02{}")) }, 1, "tampered with"},
		"TERM is ignored": {silence, func(p *place) { _ = unix.Kill(p.s.Guest().PID, unix.SIGTERM) }, 4, "no ping"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithTimeout(t.Context(), 2*hang)
			defer stop()
			p, r := launch(ctx, t, []string{os.Args[0]}, env(roleGuest))
			var err error
			if p.s, err = session.Open(ctx, r, p.in, c.o); err != nil {
				t.Fatal(err)
			}
			enough := p.keepPinging() // not before all of it runs
			proc, pids := p.startNasty()
			enough()
			c.do(p)
			exit, err := p.proc.Wait()
			if err != nil || exit.Code != c.code || exit.Signal != 0 {
				t.Errorf("guest: %+v %v", exit, err)
			}
			dead(t, append(pids, p.s.Guest().PID)...)
			if says := p.stderr.String(); !strings.Contains(says, c.says) || (c.says == "") != (says == "") {
				t.Errorf("guest says %q", says)
			}
			res, err := wait(t, proc)
			if name == "quit" {
				if err != nil || res.Exit.Signal != 9 {
					t.Errorf("the command: %+v %v", res, err)
				}
			} else if err != nil && !errors.Is(err, session.ErrGuestGone) {
				t.Errorf("the command: %+v %v", res, err)
			}
			_ = p.s.Close()
			<-p.s.Gone()
			if err := p.s.Ping(); !errors.Is(err, session.ErrGuestGone) {
				t.Errorf("ping: %v", err)
			}
			if _, err := p.s.Start(shell("exit 0"), nil, nil); !errors.Is(err, session.ErrGuestGone) {
				t.Errorf("start: %v", err)
			}
			if _, err := p.s.End(ctx, 0); !errors.Is(err, session.ErrGuestGone) {
				t.Errorf("end: %v", err)
			}
		})
	}
}

// TestClientKilled kills the client with SIGKILL.
func TestClientKilled(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 2*hang)
	defer stop()
	var out, errs buffer
	client, err := run.Local{}.Start(ctx, jobs.Cmd{Argv: []string{os.Args[0]}, Env: env(roleClient), Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "four processes", func() bool { return strings.Count(out.String(), "\n") == 4 })
	pids := numbers(t, out.String())
	if err := client.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _ = client.Wait()
	deadSoon(t, pids...)
}

// TestGuestKilled kills the guest: that is told, and told apart from an exit.
func TestGuestKilled(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 2*hang)
	defer stop()
	p, r := launch(ctx, t, []string{os.Args[0]}, env(roleGuest))
	var err error
	if p.s, err = session.Open(ctx, r, p.in, session.Options{}); err != nil {
		t.Fatal(err)
	}
	var out buffer
	proc := p.start(shell("echo $$; exec sleep 300"), &out, nil)
	eventually(t, "output", func() bool { return out.String() != "" })
	pids := numbers(t, out.String())
	_ = p.proc.Signal(syscall.SIGKILL)
	_, _ = p.proc.Wait()
	if res, err := wait(t, proc); !errors.Is(err, session.ErrGuestGone) || res.Exit.Started {
		t.Errorf("got %+v %v", res, err)
	}
	_ = unix.Kill(pids[0], unix.SIGKILL) // its guest cannot any more
	_ = p.s.Close()
}

// TestPings keeps a guest alive, also one that was stopped for longer than its
// patience.
func TestPings(t *testing.T) {
	t.Parallel()
	p := open(t, session.Options{PingTimeout: patience})
	p.keepPinging()
	proc := p.start(shell("sleep 25; exit 3"), nil, nil)
	<-proc.Begun()
	pid := p.s.Guest().PID
	_ = unix.Kill(pid, unix.SIGSTOP)
	time.Sleep(patience + time.Second)
	_ = unix.Kill(pid, unix.SIGCONT)
	if res, err := wait(t, proc); err != nil || res.Exit.Code != 3 {
		t.Errorf("%+v %v", res, err)
	}
	_ = p.s.Ping()
	eventually(t, "a pong", func() bool { return p.s.Unanswered() == 0 })
}
