package container

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"

	"berth/internal/sys/pattern"
	"berth/internal/sys/run"
)

// What came from inside is marked so in the log, and bounded: the rest of the log
// is its owner's.
const (
	insideMark = "inside: "
	maxInside  = 1 << 20
)

// tail passes everything on and remembers the end of it, until what comes is not
// the container program's alone any more. It may be read while it is written.
type tail struct {
	w   io.Writer
	max int

	mu   sync.Mutex
	buf  []byte
	task bool // the guest has spoken: what comes may be the task's
	left int  // of what is passed on of it
}

func newTail(w io.Writer, limit int) *tail { return &tail{w: w, max: limit, left: maxInside} }

// inside marks all that comes from now on: a task can write to the container
// program's standard error, by way of the guest's.
func (t *tail) inside() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.task = true
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	if !t.task {
		t.buf = append(t.buf, p...)
		if n := len(t.buf) - t.max; n > 0 {
			t.buf = append(t.buf[:0], t.buf[n:]...)
		}
		t.mu.Unlock()
		return t.w.Write(p)
	}
	defer t.mu.Unlock()
	if t.left <= 0 {
		return len(p), nil
	}
	if _, err := t.w.Write(t.mark(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// mark puts the mark before each line, and takes out what would do something to a
// terminal that shows it. Each piece ends its line: what its owner writes to the log
// next begins one.
func (t *tail) mark(p []byte) []byte {
	var out bytes.Buffer
	begins := true
	for _, b := range p[:min(len(p), t.left)] {
		if begins {
			out.WriteString(insideMark)
		}
		begins = b == '\n'
		if b < ' ' && b != '\n' && b != '\t' || b == 0x7f {
			b = '?'
		}
		out.WriteByte(b)
	}
	if !begins {
		out.WriteByte('\n')
	}
	// The marks count, so that empty lines are no way around the bound.
	if t.left -= out.Len(); t.left <= 0 {
		out.WriteString("berth: no more is kept of what came from inside\n")
	}
	return out.Bytes()
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// crash begins what a Go program, as most container programs are, says when it ends itself: the reason,
// and then what each of its threads did, in many lines.
var crash = pattern.Lazy(`^(runtime(/cgo)?|fatal error|panic): .`)

// lastLines are the last words of a program, or the first ones of its crash.
func lastLines(s string, n int) string {
	lines := strings.Split(run.LastWords(s), "\n")
	if i := slices.IndexFunc(lines, crash().MatchString); i >= 0 {
		end := i + 1
		for end < len(lines) && end < i+n && crash().MatchString(lines[end]) {
			end++
		}
		return strings.Join(lines[i:end], "; ")
	}
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
