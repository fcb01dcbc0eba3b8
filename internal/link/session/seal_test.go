//go:build linux

package session_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"
)

// tapped opens a session whose stream from the guest can be written to by the
// test, and tells what the guest has sent after its hello.
func tapped(t *testing.T) (p *place, third *os.File, sent *buffer) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 2*hang)
	p, from := launch(ctx, t, []string{os.Args[0]}, env(roleGuest))
	r, third, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	sent = &buffer{}
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		_, _ = io.Copy(io.MultiWriter(third, sent), from)
		_ = from.Close()
	}()
	if p.s, err = session.Open(ctx, r, p.in, session.Options{LeaveGrace: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.s.Close()
		_, _ = p.proc.Wait()
		<-relayed
		_ = third.Close()
		stop()
	})
	return p, third, sent
}

// tampered makes sure that a command's end is unknown, and why.
func tampered(t *testing.T, p *place, proc *session.Process) {
	t.Helper()
	res, err := wait(t, proc)
	if !errors.Is(err, session.ErrGuestGone) || !strings.Contains(err.Error(), "the stream to the guest was tampered with") {
		t.Errorf("got %+v %v", res, err)
	}
	if err := p.s.Ping(); !errors.Is(err, session.ErrGuestGone) || !errors.Is(err, wire.ErrTampered) {
		t.Errorf("ping: %v", err)
	}
	if _, err := p.s.End(t.Context(), 0); !errors.Is(err, session.ErrGuestGone) {
		t.Errorf("end: %v", err)
	}
}

// TestForged has a third party write what would decide something.
func TestForged(t *testing.T) {
	success := wire.ExitMessage{Exit: jobs.Exit{Started: true}}
	for name, forge := range map[string]func(w *wire.Writer) error{
		"exit":           func(w *wire.Writer) error { return w.Message(wire.Exit, 1, success) },
		"ended":          func(w *wire.Writer) error { return w.Message(wire.Ended, 1, wire.EndedMessage{}) },
		"pong":           func(w *wire.Writer) error { return w.Message(wire.Pong, 0, wire.PingMessage{}) },
		"end of output":  func(w *wire.Writer) error { return w.Data(wire.Stdout, 1, nil) },
		"output":         func(w *wire.Writer) error { return w.Data(wire.Stdout, 1, []byte("all tests pass\n")) },
		"unknown stream": func(w *wire.Writer) error { return w.Message(wire.Exit, 77, success) },
		"another key": func(w *wire.Writer) error {
			w.Seal(wire.NewKey(), wire.FromGuest)
			return w.Message(wire.Exit, 1, success)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, third, _ := tapped(t)
			proc := p.start(shell("sleep 60; exit 3"), nil, nil)
			if err := forge(wire.NewWriter(third)); err != nil {
				t.Fatal(err)
			}
			tampered(t, p, proc)
		})
	}
}

// TestReplayed sends again what the guest has said of a command that was good.
func TestReplayed(t *testing.T) {
	p, third, sent := tapped(t)
	hello := len(sent.String())
	if res, _, _ := p.run(shell("echo fine")); !res.Exit.OK() {
		t.Fatalf("got %+v", res)
	}
	eventually(t, "what was sent", func() bool { return strings.Contains(sent.String()[hello:], `"exit"`) })
	proc := p.start(shell("sleep 60; exit 3"), nil, nil)
	// A piece of the guest's words that begins with a frame.
	if _, err := io.WriteString(third, sent.String()[hello:]); err != nil {
		t.Fatal(err)
	}
	tampered(t, p, proc)
}

// TestUnprivileged runs the guest as a user without any capability, as it is in
// a container: its memory and descriptors are closed to its commands, and it
// can still do with them and with itself what it has to.
func TestUnprivileged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become nobody")
	}
	dir, err := os.MkdirTemp("", "berth-session-") //nolint:usetesting // nobody may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	bin, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o777), os.WriteFile(filepath.Join(dir, "guest"), bin, 0o755)) //nolint:gosec // for another user
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*hang)
	defer stop()
	// A PID namespace of its own, which it has to find out by itself.
	p, r := launch(ctx, t, []string{
		"unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
		"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", filepath.Join(dir, "guest"),
	}, env(roleGuest))
	if p.s, err = session.Open(ctx, r, p.in, session.Options{Home: filepath.Join(dir, "home"), OwnPIDNamespace: true}); err != nil {
		if strings.Contains(p.stderr.String(), "unshare") || strings.Contains(p.stderr.String(), "setpriv") {
			t.Skipf("not here: %s", p.stderr.String())
		}
		t.Fatal(err)
	}
	if g := p.s.Guest(); g.UID != 65534 || !g.OwnPIDNamespace {
		t.Errorf("got %+v", g)
	}
	req := shell(`until [ $(cat /proc/self/oom_score_adj) = 500 ]; do sleep 0.02; done; cat /proc/self/oom_score_adj; ls /proc/$$/fd >/dev/null && echo own
		ls /proc/$PPID/fd || echo closed; head -c 1 /proc/$PPID/mem; : >/proc/$PPID/fd/1 || echo shut; exit 3`)
	req.Dir = dir // nobody may not be able to enter the sources
	res, out, _ := p.run(req)
	if res.Exit.Code != 3 || out != "500\nown\nclosed\nshut\n" {
		t.Errorf("got %+v %q", res, out)
	}
	if _, err := p.s.End(ctx, 0); err != nil {
		t.Error(err)
	}
	if err := p.s.Quit(ctx); err != nil {
		t.Error(err)
	}
	_, _ = p.proc.Wait()
}

func TestClampExit(t *testing.T) {
	for name, c := range map[string]struct{ in, want jobs.Exit }{
		"good":       {jobs.Exit{Started: true}, jobs.Exit{Started: true}},
		"signal":     {jobs.Exit{Started: true, Code: 192, Signal: 64}, jobs.Exit{Started: true, Code: 192, Signal: 64}},
		"negative":   {jobs.Exit{Started: true, Code: -1}, jobs.Exit{Started: true, Code: 255}},
		"256":        {jobs.Exit{Started: true, Code: 256}, jobs.Exit{Started: true, Code: 255}},
		"no signal":  {jobs.Exit{Started: true, Signal: -9}, jobs.Exit{Started: true, Code: 255}},
		"signal 65":  {jobs.Exit{Started: true, Signal: 65}, jobs.Exit{Started: true, Code: 255}},
		"long error": {jobs.Exit{Code: 126, Error: strings.Repeat("x", 1<<20)}, jobs.Exit{Code: 126, Error: strings.Repeat("x", 4<<10)}},
		"not a text": {jobs.Exit{Code: 126, Error: "\xff"}, jobs.Exit{Code: 126, Error: "?"}},
	} {
		if got := session.ClampExit(wire.ExitMessage{Exit: c.in}).Exit; got != c.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	for in, want := range map[jobs.Bytes]jobs.Bytes{-1: 0, 5: 5, 1 << 62: 1 << 50} {
		if got := session.ClampExit(wire.ExitMessage{MaxRSS: in}).MaxRSS; got != want {
			t.Errorf("%d: got %d", in, got)
		}
	}
}
