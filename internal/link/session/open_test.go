//go:build linux

package session_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/sys/run"
	"berth/jobs"
)

// TestBanner puts a site's chatter before the guest's first word.
func TestBanner(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 2*hang)
	defer stop()
	script := `echo "Welcome to the cluster"; printf '\000berth-guest\n\000\000'; head -c 50000 /dev/urandom; exec "$0"`
	p, r := launch(ctx, t, []string{"/bin/sh", "-c", script, os.Args[0]}, env(roleGuest))
	var err error
	if p.s, err = session.Open(ctx, r, p.in, session.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, out, _ := p.run(shell("echo hello")); out != "hello\n" {
		t.Errorf("got %q", out)
	}
	if err := p.s.Quit(ctx); err != nil {
		t.Error(err)
	}
	_, _ = p.proc.Wait()
}

// TestOpenFails opens what is not a guest, or not the right one.
func TestOpenFails(t *testing.T) {
	for name, c := range map[string]struct {
		argv []string
		wait time.Duration
		want string
	}{
		"ends":      {[]string{"sh", "-c", "echo FATAL: no such image; exit 255"}, hang, `the guest ended before it spoke; its output ends with "FATAL: no such image"`},
		"ends mute": {[]string{"true"}, hang, "the guest ended before it spoke"},
		"silent":    {[]string{"sleep", "600"}, 500 * time.Millisecond, "no guest answered within 500ms"},
		"echo":      {[]string{"cat"}, 500 * time.Millisecond, "no guest answered within 500ms"},
		"endless":   {[]string{"yes"}, hang, "no hello from the other side"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 2*hang)
			p, r := launch(ctx, t, c.argv, env(""))
			_, err := session.Open(ctx, r, p.in, session.Options{StartTimeout: c.wait})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if _, err := p.in.Write([]byte("x")); err == nil {
				t.Error("the stream was left open")
			}
			stop()
			_, _ = p.proc.Wait()
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	r, _ := io.Pipe()
	_, w := io.Pipe()
	if _, err := session.Open(ctx, r, w, session.Options{}); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("cancelled: %v", err)
	}
}

// TestOtherVersion has a guest, and a client, of another version.
func TestOtherVersion(t *testing.T) {
	r, guestW := io.Pipe()
	guestR, w := io.Pipe()
	go func() {
		in := wire.NewReader(guestR)
		_, _ = in.Find(wire.ClientMagic, nil)
		n, _ := in.Nonce()
		_ = wire.NewWriter(guestW).Open(wire.GuestMagic, n, wire.GuestHello{Version: wire.Version + 1})
	}()
	if _, err := session.Open(t.Context(), r, w, session.Options{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the guest speaks version %d of the protocol, this berth version %d", wire.Version+1, wire.Version)) {
		t.Errorf("got %v", err)
	}

	ctx, stop := context.WithTimeout(t.Context(), 2*hang)
	defer stop()
	p, out := launch(ctx, t, []string{os.Args[0]}, env(roleGuest))
	nonce := wire.NewNonce()
	if err := wire.NewWriter(p.in).Open(wire.ClientMagic, nonce, wire.ClientHello{Version: wire.Version + 1}); err != nil {
		t.Fatal(err)
	}
	in := wire.NewReader(out)
	if _, err := in.Find(wire.GuestMagic, &nonce); err != nil {
		t.Fatal(err)
	}
	var g wire.GuestHello
	if err := in.Hello(&g); err != nil || !strings.Contains(g.Error, fmt.Sprintf("version %d", wire.Version+1)) {
		t.Errorf("got %+v %v", g, err)
	}
	if exit, err := p.proc.Wait(); err != nil || exit.Code != 1 {
		t.Errorf("got %+v %v", exit, err)
	}
	_, _ = p.in.Close(), out.Close()
}

// TestOwnPIDNamespace has the guest in a PID namespace of its own, where it may
// kill everything at once, and in the client's, where it must not, whatever the
// client says.
func TestOwnPIDNamespace(t *testing.T) {
	p := open(t, session.Options{OwnPIDNamespace: true})
	if p.s.Guest().OwnPIDNamespace {
		t.Fatal("the guest takes this machine's processes for its own")
	}
	unshare := []string{"unshare", "--pid", "--fork", "--mount-proc", os.Args[0]}
	if os.Getuid() != 0 {
		unshare = append([]string{"unshare", "--map-root-user"}, unshare[1:]...)
	}
	if _, err := run.Output(t.Context(), run.Local{}, jobs.Cmd{Argv: append(unshare[:len(unshare)-1:len(unshare)-1], "true")}); err != nil {
		t.Skipf("no namespaces here: %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*hang)
	defer stop()
	p, r := launch(ctx, t, unshare, env(roleGuest))
	var err error
	if p.s, err = session.Open(ctx, r, p.in, session.Options{OwnPIDNamespace: true}); err != nil {
		t.Fatalf("%v %s", err, p.stderr.String())
	}
	if g := p.s.Guest(); !g.OwnPIDNamespace || g.PID != 1 {
		t.Fatalf("got %+v", g)
	}
	// A bomb: each process forks and ends, so that a list is always out of date.
	bomb := p.start(shell(`f() { while :; do (sleep 0.01; f) & sleep 0.02; [ -e /proc/99999 ] && exit; exit; done; }; for i in 1 2 3 4 5 6 7 8; do (f) & done; wait; sleep 300`), nil, nil)
	time.Sleep(200 * time.Millisecond)
	if left, err := p.s.End(ctx, 0); left != 0 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
	if _, err := wait(t, bomb); err != nil {
		t.Error(err)
	}
	_, out, _ := p.run(shell("ls -d /proc/[0-9]* | wc -l"))
	if n, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || n > 5 {
		t.Errorf("%q processes", out)
	}
	if err := p.s.Quit(ctx); err != nil {
		t.Error(err)
	}
	if exit, err := p.proc.Wait(); err != nil || !exit.OK() {
		t.Errorf("%+v %v", exit, err)
	}
}
