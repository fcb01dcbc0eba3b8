package mux

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/jobs"
)

// much is more than goes without files, and no whole number of them.
const much = 3*chunkSize + 12345

// plenty writes so much that it has a pipe.
const plenty = "head -c 5000000 /dev/zero"

func noise(n int) ([]byte, string) {
	r := rand.NewChaCha8([32]byte{7})
	b := make([]byte, n)
	_, _ = r.Read(b)
	sum := sha256.Sum256(b)
	return b, hex.EncodeToString(sum[:])
}

// spied counts the files of a spool that were seen.
func spied(t *testing.T, e *env, do func()) (most int) {
	t.Helper()
	done, counted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(counted)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			files, _ := filepath.Glob(filepath.Join(e.dir, dirSpool, "*"))
			most = max(most, len(files))
		}
	}()
	do()
	close(done)
	<-counted
	return most
}

func TestPipes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	m := e.mux(e.far())
	l := e.link()
	io1 := filepath.Join(e.dir, "io")
	data, sum := noise(much)
	local := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(local, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*conn{
		"mux": e.dial(m, session.Options{Pipes: m.Pipes(e.dir, io1, io1)}), "link": e.dial(l, session.Options{Pipes: l.Pipes(io1, io1)}),
	} {
		if c.sh("echo x") != "x\n" {
			t.Error(name)
		}
		inside := filepath.Join(e.tmp, "in-"+name)
		if n := spied(t, e, func() {
			if _, err := c.WriteFile(t.Context(), "", inside, bytes.NewReader(data), session.WriteOptions{}); err != nil {
				t.Error(name, err)
			}
		}); n == 0 || n > maxChunks+1 {
			t.Errorf("%s: %d files", name, n)
		}
		if out := c.sh("sha256sum <" + inside); out != sum+"  -\n" {
			t.Errorf("%s: %q", name, out)
		}
		var out bytes.Buffer
		if n := spied(t, e, func() {
			if res, err := c.start("cat "+inside, &out).Wait(); err != nil || res.Output != nil {
				t.Error(name, err, res.Output)
			}
		}); n == 0 || n > maxChunks+1 {
			t.Errorf("%s: %d files", name, n)
		}
		if !bytes.Equal(out.Bytes(), data) {
			t.Errorf("%s: %d bytes of %d", name, out.Len(), len(data))
		}
		// Trees, and files that are given back.
		if _, err := c.CopyIn(t.Context(), "", local, inside+"-copied", nil); err != nil {
			t.Error(name, err)
		}
		back := filepath.Join(t.TempDir(), "back")
		if _, err := c.CopyOut(t.Context(), "", inside+"-copied", back, nil); err != nil {
			t.Error(name, err)
		}
		if b, err := os.ReadFile(back); err != nil || !bytes.Equal(b, data) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		// Little needs no file, and none is empty.
		if n := spied(t, e, func() {
			for _, say := range []string{"", "x", strings.Repeat("y", 100000)} {
				if out := c.sh("printf %s '" + say + "'"); out != say {
					t.Errorf("%s: %d bytes of %d", name, len(out), len(say))
				}
			}
		}); n > 0 {
			t.Errorf("%s: %d files for little", name, n)
		}
		// A trickle is seen at once, also behind much.
		var seen syncBuffer
		p := c.start("head -c 2000000 /dev/zero; printf first; read x </dev/zero || sleep 1000", &seen)
		eventually(t, "the trickle", func() bool { return strings.HasSuffix(seen.String(), "first") })
		_ = p.Terminate(0)
		_, _ = p.Wait()
		_ = os.Remove(inside)
		// One is made beforehand, and goes with the session.
		pipes := func() int {
			names, _ := os.ReadDir(io1)
			return len(names)
		}
		eventually(t, "one stands ready", func() bool { return pipes() == 1 })
		_ = c.Close()
		eventually(t, "it is gone", func() bool { return pipes() == 0 })
	}
}

// Someone inside who keeps the pipe open is not waited for.
func TestPipeHeldOpen(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	m := e.mux(e.far())
	at := filepath.Join(e.dir, "io")
	c := e.dial(m, session.Options{Pipes: m.Pipes(e.dir, at, at)})
	done := make(chan string, 1)
	go func() { done <- c.sh("sleep 1000 & echo x; head -c 1000000 /dev/zero | tr '\\0' y") }()
	if out := soon(t, "the output", done); len(out) != 1000002 {
		t.Errorf("%d bytes", len(out))
	}
}

// What breaks on the way is told, and half is not taken for the whole.
func TestPipesBroken(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	at := filepath.Join(e.dir, "io")
	data, _ := noise(much)
	for name, harm := range map[string]func(){
		"the far side is killed": func() { _ = syscall.Kill(e.one("--mux"), syscall.SIGKILL) },
		"the spool is a file": func() {
			_ = os.RemoveAll(filepath.Join(e.dir, dirSpool))
			_ = os.WriteFile(filepath.Join(e.dir, dirSpool), nil, 0o600)
		},
	} {
		m := e.mux(e.far())
		p := m.Pipes(e.dir, at, at)
		c := e.dial(m, session.Options{Pipes: p})
		c.sh(plenty) // now the two directories are known to be one
		inside := filepath.Join(e.tmp, "file")
		r := &harming{r: bytes.NewReader(data), after: much / 2, harm: harm}
		if _, err := c.WriteFile(t.Context(), "", inside, r, session.WriteOptions{}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Stat(inside); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: half a file: %v", name, err)
		}
		_ = m.Close()
		if fi, err := os.Lstat(filepath.Join(e.dir, dirSpool)); err == nil && !fi.IsDir() {
			_ = os.Remove(filepath.Join(e.dir, dirSpool))
		}
	}
	// The same of output.
	m := e.mux(e.far())
	c := e.dial(m, session.Options{Pipes: m.Pipes(e.dir, at, at)})
	c.sh(plenty)
	if err := os.RemoveAll(filepath.Join(e.dir, dirSpool)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.dir, dirSpool), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if res, err := c.start("cat /dev/zero", io.Discard).Wait(); err != nil || res.Output == nil || !strings.Contains(res.Output.Error(), dirSpool) {
		t.Errorf("%+v, %v", res, err)
	}
	_ = os.Remove(filepath.Join(e.dir, dirSpool))
}

// harming does harm in the middle of what it reads.
type harming struct {
	r     io.Reader
	after int
	harm  func()
}

func (h *harming) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if h.after -= n; h.after <= 0 && h.harm != nil {
		h.harm()
		h.harm = nil
	}
	return n, err
}

// A client that leaves while the guest does not read leaves nothing behind.
func TestPipeGivenUp(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	l := e.link()
	at := filepath.Join(e.dir, "io")
	if l.Pipes(at, at).Make(true) != nil {
		t.Fatal("nobody holds a connection")
	}
	c := e.dial(l, session.Options{})
	p, ok := l.Pipes(at, at).Make(true).(*farPipe)
	if !ok {
		t.Fatal("no pipe")
	}
	guest, err := os.Open(p.Inside()) // and does not read it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = guest.Close() }()
	data, _ := noise(much)
	done := make(chan error, 1)
	go func() { done <- p.Send(bytes.NewReader(data)) }()
	eventually(t, "it is full", func() bool {
		files, _ := filepath.Glob(filepath.Join(e.dir, dirSpool, "*"))
		return len(files) == maxChunks-1 || len(files) == maxChunks
	})
	p.Close()
	_ = soon(t, "the end", done)
	eventually(t, "nothing is left", func() bool {
		files, _ := filepath.Glob(filepath.Join(e.dir, dirSpool, "*"))
		pipes, _ := filepath.Glob(filepath.Join(at, "*"))
		return len(files)+len(pipes) == 0
	})
	if out := c.sh("echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
}

// Where the two machines do not share the directory, nothing goes this way.
func TestNotShared(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	m := e.mux(e.far())
	elsewhere := t.TempDir()
	p := m.Pipes(elsewhere, filepath.Join(elsewhere, "io"), "/io")
	if p.Make(false) != nil || p.Make(true) != nil {
		t.Error("a pipe")
	}
	if left, _ := filepath.Glob(filepath.Join(elsewhere, dirSpool, "*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if out := e.dial(m, session.Options{Pipes: p}).sh("head -c 3000000 /dev/zero | wc -c"); out != "3000000\n" {
		t.Errorf("%q", out)
	}
	for _, here := range []string{"", "/elsewhere", filepath.Dir(e.dir)} {
		if m.Pipes(e.dir, here, "/io") != nil {
			t.Errorf("%q is not below it", here)
		}
	}
}

// What the near side names is checked by the far one.
func TestPipeNames(t *testing.T) {
	e := newEnv(t)
	f := &farSide{dir: e.dir}
	if err := os.Mkdir(filepath.Join(e.dir, "io"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(e.tmp, filepath.Join(e.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(e.dir, "open"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(e.dir, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	id := newSpoolID()
	for _, r := range []*pipeRequest{nil, {Dir: "io"}, {Dir: "io", Spool: "../../../../etc/x"}, {Dir: "../test/io", Spool: id}, {Dir: "/tmp", Spool: id}, {Dir: "", Spool: id},
		{Dir: "link", Spool: id}, {Dir: "open", Spool: id}, {Dir: "missing", Spool: id}, {Dir: "io", Spool: id + "*"}} {
		if p, err := f.makePipe(r); err == nil {
			p.close()
			t.Errorf("%+v", r)
		}
	}
	p, err := f.makePipe(&pipeRequest{Dir: "io", Spool: id})
	if err != nil {
		t.Fatal(err)
	}
	p.close()
	for _, r := range []*sharedRequest{nil, {Name: "../env.json"}} {
		if a := f.shared(r); jobs.KindOf(a.Err()) != jobs.KindUsage {
			t.Errorf("%+v", r)
		}
	}
}

// Files that no one takes any more are removed, and no others.
func TestSweepSpool(t *testing.T) {
	dir := t.TempDir()
	old, fresh, other := newSpoolID()+".1", newSpoolID()+".2.new", "notes.txt"
	for _, n := range []string{old, fresh, other} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for _, n := range []string{old, other} {
		if err := os.Chtimes(filepath.Join(dir, n), now, now.Add(-2*staleTime)); err != nil {
			t.Fatal(err)
		}
	}
	sweepSpool(dir, now)
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(left) != 2 {
		t.Errorf("%q", left)
	}
}

// What was sent before the far side could write no more still arrives, and then
// why it could not.
func TestPipeFull(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keep()
	l := e.link()
	at := filepath.Join(e.dir, "io")
	data, _ := noise(2*chunkSize + inlineMost) // before the pipe, whose far side does not wait for long
	_ = e.dial(l, session.Options{})
	var p *farPipe
	var guest *os.File
	eventually(t, "a pipe is opened", func() bool {
		// The far side waits 2 s for one who comes; on a busy machine another is made.
		p, _ = l.Pipes(at, at).Make(false).(*farPipe)
		if p == nil {
			return false
		}
		var err error
		if guest, err = os.OpenFile(p.Inside(), os.O_WRONLY|syscall.O_NONBLOCK, 0); err != nil {
			p.Close()
		}
		return err == nil
	})
	defer p.Close()
	if err := os.WriteFile(filepath.Join(e.dir, dirSpool, p.spool.id+".1.new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		if _, err := guest.Write(data); !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
		_ = guest.Close()
	}()
	w := &harming{r: bytes.NewReader(data), harm: func() {
		select {
		case <-refused:
		case <-time.After(10 * time.Second): // after pauses no file is begun yet, and the far side waits for this one
		}
	}}
	var got bytes.Buffer
	err := p.Receive(writing(func(b []byte) (int, error) {
		if got.Len() >= inlineMost-inlineSize {
			_, _ = w.Read(make([]byte, 1)) // the first file is there, and the next one is not
		}
		return got.Write(b)
	}))
	if err == nil || !strings.Contains(err.Error(), "file exists") {
		t.Errorf("%v", err)
	}
	// The first file is not full where the guest paused, on a busy machine.
	if got.Len() <= inlineMost || !bytes.Equal(got.Bytes(), data[:got.Len()]) {
		t.Errorf("%d bytes came", got.Len())
	}
}

type writing func([]byte) (int, error)

func (f writing) Write(p []byte) (int, error) { return f(p) }
