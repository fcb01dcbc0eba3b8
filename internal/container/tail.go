package container

import (
	"io"
	"strings"
	"sync"
)

// tail passes everything on and remembers the end of it. It may be read while
// it is written.
type tail struct {
	w   io.Writer
	max int

	mu  sync.Mutex
	buf []byte
}

func newTail(w io.Writer, limit int) *tail { return &tail{w: w, max: limit} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - t.max; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	t.mu.Unlock()
	return t.w.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
