package wire

import (
	"io"
	"time"
)

// When small pieces are gathered. At 1 KiB a piece a step that is given all that it can carry
// brings one every 15 µs; a question that waits for the answer to the one before takes more
// than gatherGap on its way there and back.
const (
	gatherAfter = 32                     // pieces, one at once after the other
	gatherGap   = 300 * time.Microsecond // a read that waited longer ends them
	gatherPause = 500 * time.Microsecond
)

// Gather returns a reader of r, a pipe or a socket behind a program that passes bytes on in
// small pieces, as a job step does with 1 KiB. While these come without a pause it lets them
// come together for half a millisecond before each read, so that whatever stands behind
// is woken once for many. What comes alone is passed on at once. It is not safe for
// concurrent use.
func Gather(r io.Reader) io.Reader { return &gathered{r: r} }

type gathered struct {
	r      io.Reader
	pieces int
}

func (g *gathered) Read(p []byte) (int, error) {
	if g.pieces >= gatherAfter {
		time.Sleep(gatherPause)
	}
	began := time.Now()
	n, err := g.r.Read(p)
	switch {
	case time.Since(began) > gatherGap:
		g.pieces = 0
	case n < len(p):
		g.pieces++
	default: // there is more, which need not be waited for
		g.pieces = min(g.pieces, gatherAfter-1)
	}
	return n, err
}
