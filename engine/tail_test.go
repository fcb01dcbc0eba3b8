package engine

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"berth/jobs/store"
)

// Whoever watches gets the last lines first, what comes, and of too much the last lines again.
func TestTail(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	f.claim(r)
	var out, errs bytes.Buffer
	tail := f.Tail(r, LogCommand, 20, &out, &errs)
	must(t, tail.Next())
	if out.Len() != 0 {
		t.Errorf("%q before anything is written", &out)
	}
	next := func(name, text, want string) {
		t.Helper()
		out.Reset()
		errs.Reset()
		writes(t, r, name, text)
		must(t, tail.Next())
		if got := out.String() + errs.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	next(store.FileStdout, strings.Repeat("an early line\n", 100)+"the last\n", "the last\n")
	next(store.FileStdout, "more", "more")
	next(store.FileStderr, "an error\n", "an error\n")
	next(store.FileStdout, "\n"+strings.Repeat("x", 30)+"\nend\n", "end\n")
	next(store.FileStdout, strings.Repeat("y", 30), strings.Repeat("y", 20)) // one line that has no begin
}

// endless is a task that writes as much again as is read of it.
type endless struct {
	again func(string)
	got   int
}

func (e *endless) Write(p []byte) (int, error) {
	if e.got += len(p); e.got > 1000 {
		return 0, errors.New("it goes on and on")
	}
	e.again(string(p))
	return len(p), nil
}

// A task that always writes does not keep whoever watches.
func TestTailEndless(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	f.claim(r)
	e := &endless{again: func(s string) { writes(t, r, store.FileStdout, s) }}
	tail := f.Tail(r, LogCommand, 20, e, nil)
	e.again("a line\n")
	for i := range 3 {
		must(t, tail.Next())
		if most := 20 * (i + 1); e.got == 0 || e.got > most {
			t.Errorf("%d bytes of at most %d", e.got, most)
		}
	}
}
