package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// newMover returns one, and a file that holds size random bytes.
func newMover(t *testing.T, size int) (m *mover, f *os.File, content []byte) {
	t.Helper()
	content = make([]byte, size)
	_, _ = rand.Read(content)
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &mover{ctx: t.Context(), buf: make([]byte, bufferSize)}, f, content
}

// TestSplice moves bytes inside the kernel, both ways, as many as there are and
// are asked for.
func TestSplice(t *testing.T) {
	const size = 3<<20 + 17
	for name, c := range map[string]struct{ ask, want int64 }{
		"all":  {size, size},
		"some": {size - 4097, size - 4097},
		"more": {size + 4097, size},
	} {
		m, from, content := newMover(t, size)
		_, to, _ := newMover(t, 0)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan int64)
		go func() {
			sender := &mover{ctx: m.ctx}
			n := sender.splice(w, from, c.ask, toPipe)
			_ = w.Close()
			sent <- n
		}()
		n := m.splice(r, to, c.ask, fromPipe)
		if s := <-sent; s != c.want || n != c.want || m.tally.Bytes != n {
			t.Errorf("%s: %d sent, %d moved, %d counted, want %d", name, s, n, m.tally.Bytes, c.want)
		}
		got, err := os.ReadFile(to.Name())
		if err != nil || !bytes.Equal(got, content[:c.want]) {
			t.Errorf("%s: got %d other bytes, %v", name, len(got), err)
		}
		_ = r.Close()
	}
}

// TestSpliceWoken ends splices that wait for the other side of a pipe.
func TestSpliceWoken(t *testing.T) {
	for _, d := range []direction{toPipe, fromPipe} {
		m, f, _ := newMover(t, 3<<20)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		pipe := r
		if d == toPipe {
			pipe = w
		}
		done := make(chan int64)
		go func() { done <- m.splice(pipe, f, 3<<20, d) }()
		select {
		case <-done:
			t.Errorf("%v: it did not wait", d)
		case <-time.After(50 * time.Millisecond):
			_ = pipe.Close()
			<-done
		}
		_, _ = r.Close(), w.Close()
	}
}

// TestSpliceNot leaves to the usual way what the kernel does not do, and what
// no one wants any more.
func TestSpliceNot(t *testing.T) {
	m, f, _ := newMover(t, 1<<20)
	_, other, _ := newMover(t, 1<<20)
	if n := m.splice(other, f, 1<<20, toPipe); n != 0 {
		t.Errorf("%d bytes between files", n)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	m.ctx = ctx
	if n := m.splice(w, f, 1<<20, toPipe); n != 0 {
		t.Errorf("%d bytes after the end", n)
	}
}
