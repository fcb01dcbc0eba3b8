package mux

import (
	"bytes"
	"io"
	"testing"
)

// bursts gives as much as goes as bytes, pauses where a file would begin, and then
// gives a file.
type bursts struct{ left, step int }

func (b *bursts) read(p []byte, idle bool) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if !idle {
		return len(p), nil
	}
	if b.step++; b.step%3 != 2 { // before a file, and at its end
		return 0, errIdle
	}
	b.left--
	return len(p), nil
}

// A pause where a file would begin takes nothing away from how many files may be
// under way.
func TestPauses(t *testing.T) {
	t.Parallel()
	const files = 12
	r, w := io.Pipe()
	taken := make(chan struct{}, maxChunks)
	s := &sending{spool: &spool{dir: t.TempDir(), id: newSpoolID()}, out: &records{w: w}, taken: taken, gone: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- s.run(&bursts{left: files}) }()
	in, seen := receiving{spool: s.spool}, 0
	for {
		kind, n, err := take(r)
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case recBytes:
			_, err = io.CopyN(io.Discard, r, n)
		case recChunk:
			seen++
			err = in.chunk(&bytes.Buffer{}, n, make([]byte, inlineSize))
			taken <- struct{}{}
		case recOver:
			if err := soon(t, "the end", done); err != nil || seen != files {
				t.Errorf("%d files, %v", seen, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
