package mux

import (
	"strings"
	"sync"

	"berth/internal/node/keeper"
	"berth/internal/sys/run"
	"berth/jobs"
)

// reports reads the standard error of the far command: the reports of its far
// end, and what else is said, which is kept for errors.
type reports struct {
	progress func(string)

	mu    sync.Mutex
	lines run.Lines
	said  []byte
	last  *keeper.Report // the one that ends the opening
}

// Bounds of what is kept.
const (
	maxLine = 256 << 10 // what is longer is no report
	maxSaid = 4 << 10
)

func newReports(progress func(string)) *reports {
	r := &reports{progress: progress}
	r.lines = run.Lines{Most: maxLine, Take: r.take}
	return r
}

func (r *reports) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.Write(p)
}

// take reads one line.
func (r *reports) take(line string) {
	if last, ok := keeper.ReadReport(line, keeper.ConnectPrefix, r.progress); ok {
		if last != nil {
			r.last = last
		}
		return
	}
	r.said = append(append(r.said, line...), '\n')
	if over := len(r.said) - maxSaid; over > 0 {
		r.said = append(r.said[:0], r.said[over:]...)
	}
}

// failure is the error that the far side has reported, or nil.
func (r *reports) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return nil
	}
	return r.last.Err()
}

// rest is what else was said.
func (r *reports) rest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.TrimSpace(jobs.Printable(string(r.said) + r.lines.Rest()))
}
