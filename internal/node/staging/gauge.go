//go:build linux

package staging

import (
	"time"

	"berth/internal/images"
)

// When a gauge begins to tell, and how often it does; variables for tests.
var (
	gaugeAfter = time.Second
	gaugeEvery = 250 * time.Millisecond
)

// gauge tells how far something is that takes more than a second. It is of one goroutine.
type gauge struct {
	meter       func(what string, done, of int64) // may be nil
	what        string
	begun, told time.Time
}

func (n *Node) gauge(what string) *gauge {
	return &gauge{meter: n.Meter, what: what, begun: time.Now()}
}

func (g *gauge) tell(done, of int64) {
	now := time.Now()
	if g.meter == nil || now.Sub(g.begun) < gaugeAfter || now.Sub(g.told) < gaugeEvery {
		return
	}
	g.told = now
	g.meter(g.what, done, of)
}

// end says that it is over, where anything was said.
func (g *gauge) end() {
	if !g.told.IsZero() {
		g.meter("", 0, 0)
	}
}

// watch tells how much the files below a directory hold, until stop is called, which ends the
// gauge. A tree of many files is looked at less often.
func (g *gauge) watch(dir string) (stop func()) {
	if g.meter == nil {
		return func() {}
	}
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for wait := gaugeAfter; ; {
			select {
			case <-ending:
				g.end()
				return
			case <-time.After(wait):
			}
			began := time.Now()
			g.tell(images.TreeSize(dir), 0)
			wait = max(gaugeEvery, 20*time.Since(began))
		}
	}()
	return func() { close(ending); <-ended }
}
