package keeper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/wire"
	"berth/internal/sys/socket"
	"berth/jobs/store"
)

// The directory of a user who logs out is removed with all in it: the keeper
// can be reached again, by those who had come before, too.
func TestSocketRemoved(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	before := e.info()
	for range 3 {
		if err := os.Remove(e.info().Socket); err != nil {
			t.Fatal(err)
		}
		d := e.open()
		if out, _ := d.sh("", "echo x"); out != "x\n" || d.state().PID != before.PID {
			t.Errorf("%q, %+v", out, d.state())
		}
	}
	if out, _ := c.sh("", "echo y"); out != "y\n" {
		t.Errorf("%q", out)
	}
	if s := e.log(); strings.Count(s, "the socket was gone") != 3 {
		t.Error(s)
	}
}

// A copy of a state directory has environments of the same ids, and each has
// a keeper of its own.
func TestSocketOfCopy(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	copied := *e
	copied.dir = filepath.Join(t.TempDir(), "copied")
	if err := os.CopyFS(copied.dir, os.DirFS(e.dir)); err != nil {
		t.Fatal(err)
	}
	// Of the original's keeper it has the lease, too, which is not its own.
	for _, f := range []string{"lease.1.json", fileInfo} {
		if err := os.Remove(filepath.Join(copied.dir, f)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { endKeeper(t, &copied) })
	d := copied.open()
	if c.state().PID == d.state().PID || e.info().Socket == copied.info().Socket {
		t.Errorf("%+v, %+v", e.info(), copied.info())
	}
	if f := e.open(); f.state().PID != c.state().PID {
		t.Errorf("%+v", f.state())
	}
}

// A keeper that waits for another one does not outlive whoever waits for it.
func TestWaitForNone(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	first := e.info()
	// Its name is someone else's then, and it makes no other socket.
	other := first.Socket + ".other"
	if err := errors.Join(os.WriteFile(other, nil, 0o600), os.Rename(other, first.Socket)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(first.Socket) })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, _, err := Open(ctx, e.dir, e.options()); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	eventually(t, "the second keeper leaves", func() bool {
		for pid, line := range e.processes() {
			if pid != first.PID && strings.Contains(line, " keep ") {
				return false
			}
		}
		return true
	})
	if out, _ := c.sh("", "echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
	_ = syscall.Kill(first.PID, syscall.SIGTERM)
}

// A keeper that was stopped while its environment was removed, and one of the
// same name made, leaves the new one alone.
func TestMadeAgain(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	e.open()
	old := e.info()
	if err := syscall.Kill(old.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(old.PID, syscall.SIGCONT) }()
	if err := os.Rename(e.dir, e.dir+"-gone"); err != nil {
		t.Fatal(err)
	}
	spec := e.spec
	spec.ID += "-2"
	if _, _, err := store.CreateEnv(e.dir, spec); err != nil {
		t.Fatal(err)
	}
	c := e.open()
	now := e.info()
	if now.PID == old.PID || c.rep.Rebuilt != "" {
		t.Errorf("%+v, %+v", now, c.rep)
	}
	if err := syscall.Kill(old.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old one leaves", func() bool {
		_, there := e.processes()[old.PID]
		return !there
	})
	if i := e.info(); i.PID != now.PID || !i.Running || !Alive(e.dir) {
		t.Errorf("%+v", i)
	}
	if out, _ := e.open().sh("", "echo x"); out != "x\n" || e.info().PID != now.PID {
		t.Errorf("%q", out)
	}
	_ = os.Remove(old.Socket)
}

// Who reaches the socket and has not read the state directory is not let in.
func TestSecret(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	_ = e.open()
	at, err := Peek(e.dir)
	if err != nil || at.Secret != "" {
		t.Fatalf("%+v, %v", at, err)
	}
	known, err := peek(e.dir)
	if err != nil || len(known.Secret) < 20 {
		t.Fatalf("%+v, %v", known, err)
	}
	for _, says := range []string{"\n", known.Secret[1:] + "\n", known.Secret + "x\n", strings.Repeat("x", 100)} {
		conn, err := socket.Dial(t.Context(), at.Socket)
		if err != nil {
			t.Fatal(err)
		}
		line, err := readLine(conn, 64)
		if err != nil || line != strings.TrimSpace(greeting(saySecret)) {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = conn.WriteString(says)
		w := wire.NewWriter(conn)
		key := wire.NewKey()
		_ = w.Open(wire.ClientMagic, wire.NewNonce(), wire.ClientHello{Version: wire.Version, Key: key[:]})
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %d bytes, %v", says, n, err)
		}
		_ = conn.Close()
	}
}
