package socket

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func private(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTalk(t *testing.T) {
	path := filepath.Join(private(t), "x.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if l.Waiting() != nil {
		t.Error("a client that is not there")
	}
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := c.WriteString("question"); err != nil {
		t.Fatal(err)
	}
	ShutWrite(c)
	if b, err := io.ReadAll(s); string(b) != "question" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := s.WriteString("answer"); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if b, err := io.ReadAll(c); string(b) != "answer" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
}

// A dead process's socket is replaced; the name is taken away only by whose it
// is.
func TestReplace(t *testing.T) {
	path := filepath.Join(private(t), "x.sock")
	old, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = old.Close()
	if c, err := Dial(t.Context(), path); err == nil {
		_ = c.Close()
		t.Error("nobody listens there")
	}
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	old.Remove()
	if !l.Stands() {
		t.Fatal("the new one is gone")
	}
	l.Remove()
	if l.Stands() {
		t.Error("it still has its name")
	}
}

// Where others could put a socket of theirs, none is trusted.
func TestNotPrivate(t *testing.T) {
	dir := private(t)
	path := filepath.Join(dir, "x.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if c, err := Dial(t.Context(), path); err == nil {
		_ = c.Close()
		t.Error("a socket in a directory of everybody's")
	}
	short, err := os.MkdirTemp("/tmp", "berth-run-") //nolint:usetesting // t.TempDir is too long for an address
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(short) }()
	t.Setenv("XDG_RUNTIME_DIR", short)
	got, err := Dir()
	if err != nil || got != filepath.Join(short, "berth") || !Own(got, true) {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Chmod(got, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, _ := Dir(); strings.HasPrefix(got, short) {
		t.Errorf("%q is not private", got)
	}
}

// A name that someone else made first is not used, and keeps no one out.
func TestDirTaken(t *testing.T) {
	tmp := t.TempDir()
	plain, err := In(tmp)
	if err != nil || !Own(plain, true) {
		t.Fatal(plain, err)
	}
	if err := os.Remove(plain); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), plain); err != nil {
		t.Fatal(err)
	}
	scratch := plain + "-01a1ffa890b2" // of an environment, and removed with it
	if err := os.Mkdir(scratch, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, decoy := range []string{"-private-0", "-private-1"} {
		if err := os.Mkdir(plain+decoy, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(plain+decoy, 0o755); err != nil { //nolint:gosec // that is what is wrong with it
			t.Fatal(err)
		}
	}
	first, err := In(tmp)
	if err != nil || first == plain || first == scratch || !Own(first, true) || len(filepath.Base(first)) > 40 {
		t.Fatal(first, err)
	}
	if again, err := In(tmp); err != nil || again != first {
		t.Errorf("%q, then %q, %v", first, again, err)
	}
	if got, err := In(filepath.Join(tmp, "none")); err == nil {
		t.Errorf("made %q", got)
	}
}

// The other side's user is checked.
func TestPeer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	for uid, want := range map[int]bool{0: true, 65534: false} {
		if got := asked(t, uid); got != want {
			t.Errorf("a client of the user %d: %v", uid, got)
		}
	}
}

func TestName(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range []string{Name("keep", "a", "/x"), Name("hold", "a", "/x"), Name("keep", "b", "/x"), Name("keep", "a", "/y"), Name("keep", "a\x00", "/x")} {
		if seen[n] || len(n) > 40 || strings.ContainsAny(n, "/\x00") {
			t.Errorf("%q", n)
		}
		seen[n] = true
	}
}
