package keeper

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"
)

// Files pass a keeper, and a writer that disappears leaves the old content.
func TestFiles(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c, d := e.open(), e.open()
	big := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	if _, err := c.WriteFile(t.Context(), "", "f", bytes.NewReader(big), session.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	var back bytes.Buffer
	if _, err := d.ReadFile(t.Context(), "", "f", 0, int64(len(big)), &back); err != nil || !bytes.Equal(back.Bytes(), big) {
		t.Errorf("%d bytes, %v", back.Len(), err)
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.WriteFile(t.Context(), "", "f", r, session.WriteOptions{})
		done <- err
	}()
	if _, err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it writes", func() bool { return d.state().Running == 1 })
	_ = c.Close()
	if err := <-done; err == nil {
		t.Error("a writer that disappeared was told of success")
	}
	_ = w.Close()
	eventually(t, "it is abandoned", func() bool { return d.state().Running == 0 })
	b, err := os.ReadFile(filepath.Join(e.tmp, "f"))
	if err != nil || !bytes.Equal(b, big) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if left, _ := os.ReadDir(e.tmp); len(left) != 2 { // the file and the keeper's scratch
		t.Errorf("%v", left)
	}
}

// A terminal passes a keeper: size, input, output; it ends with its client.
func TestTerminal(t *testing.T) {
	t.Parallel()
	e := newEnv(t, func(s *jobs.EnvSpec) { s.Lifetime = 200 * time.Millisecond })
	p := quick
	p.Accept = slow
	e.periods = &p
	c := e.open()
	var out syncBuffer
	in, typed := io.Pipe()
	defer func() { _ = typed.Close() }()
	sh, err := c.Start(session.StartRequest{TTY: &wire.Size{Rows: 24, Cols: 80}, Stdin: in, Env: []string{"PS1=$ "}}, &out, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typed.Write([]byte("stty size; echo a$((1+1))b\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it answers", func() bool { return strings.Contains(out.String(), "24 80") && strings.Contains(out.String(), "a2b") })
	if err := sh.Resize(wire.Size{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(p.Accept + 500*time.Millisecond) // longer than the environment may be idle
	if _, err := typed.Write([]byte("stty size\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its size is new", func() bool { return strings.Contains(out.String(), "30 100") })
	_ = c.Close()
	if _, err := sh.Wait(); err == nil {
		t.Error("an end that nobody saw")
	}
	eventually(t, "the environment ends", func() bool { return !Alive(e.dir) })
}

// A time limit passes a keeper.
func TestTimeout(t *testing.T) {
	t.Parallel()
	c := newEnv(t, nil).open()
	var out syncBuffer
	p, err := c.Start(session.StartRequest{Command: jobs.Command{Shell: "echo some; sleep 1000"}, Session: "s", Timeout: slow}, &out, &out)
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait()
	if err != nil || !res.TimedOut || !strings.HasPrefix(out.String(), "some\n") {
		t.Errorf("%+v, %v, %q", res, err, out.String())
	}
	if out, _ := c.sh("s", "echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
}
