package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"berth/jobs"
)

// meter shows how far something long is, on a terminal, in a line that is written again and
// again; what is "" takes the line away. of is 0 where it is not known.
func (a *app) meter(what string, done, of int64) {
	if !a.errTTY || a.raw.Load() {
		return
	}
	switch {
	case what == "":
		a.overwrite("")
	case of > 0:
		const width = 24
		n := int(done * width / max(of, done))
		a.overwrite(fmt.Sprintf("%.80s [%s%s] %s of %s", jobs.Printable(what),
			strings.Repeat("=", n), strings.Repeat(" ", width-n), mib(done), mib(of)))
	default:
		a.overwrite(fmt.Sprintf("%.80s: %s", jobs.Printable(what), mib(done)))
	}
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// A gauge is told of nothing before gaugeAfter, and then each gaugeEvery.
const (
	gaugeAfter = time.Second
	gaugeEvery = 200 * time.Millisecond
)

// gauge shows how far something is that takes more than a second, and how fast it goes; end
// takes the line away. Without a terminal there is none, and progress is nil.
func (a *app) gauge(what string) (progress func(done, of int64), end func()) {
	if !a.errTTY {
		return nil, func() {}
	}
	var mu sync.Mutex // who writes may be another goroutine than who waits for the end
	begun, shown, ended := a.now(), time.Time{}, false
	progress = func(done, of int64) {
		mu.Lock()
		defer mu.Unlock()
		now := a.now()
		if ended || now.Sub(begun) < gaugeAfter || now.Sub(shown) < gaugeEvery {
			return
		}
		shown = now
		if of > 0 {
			done = min(done, of)
		}
		a.meter(fmt.Sprintf("%s at %.0f MiB/s", what, float64(done)/float64(jobs.MiB)/now.Sub(begun).Seconds()), done, of)
	}
	return progress, func() {
		mu.Lock()
		defer mu.Unlock()
		if ended = true; !shown.IsZero() {
			a.meter("", 0, 0)
		}
	}
}

// gauged is a reader whose gauge tells how much of it was read; progress may be nil. Of what is
// no file its size is not known.
func gauged(r io.Reader, progress func(done, of int64)) io.Reader {
	if progress == nil {
		return r
	}
	g := &gaugedReader{Reader: r, progress: progress}
	if f, is := r.(*os.File); is {
		if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() {
			g.of = fi.Size()
		}
	}
	return g
}

type gaugedReader struct {
	io.Reader
	progress func(done, of int64)
	done, of int64
}

func (g *gaugedReader) Read(p []byte) (int, error) {
	n, err := g.Reader.Read(p)
	g.done += int64(n)
	g.progress(g.done, g.of)
	return n, err
}
