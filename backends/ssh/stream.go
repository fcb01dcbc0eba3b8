package ssh

import (
	"errors"
	"io"
	"sync"
	"time"

	"berth/internal/node/keeper"
	"berth/internal/sys/run"
)

// stream is a conversation over the standard input and output of an ssh
// program.
type stream struct {
	h       *Host
	far     *run.Piped
	reports *reports

	closing sync.Once
	closed  bool
	mu      sync.Mutex
}

// endTime is how long the ssh program may take to end by itself. whyTime is that
// where its word is waited for, after it has closed its streams: without it a
// link that broke is an end like any other.
const (
	endTime = 2 * time.Second
	whyTime = 15 * time.Second
)

// Read reads what the far side writes. The end of a link that broke is an error
// that says so, not io.EOF.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.far.Out.Read(p)
	if errors.Is(err, io.EOF) && n == 0 {
		return 0, s.why()
	}
	return n, err
}

// why tells how the stream ended.
func (s *stream) why() error {
	t := time.NewTimer(whyTime)
	defer t.Stop()
	select {
	case <-s.far.Ended:
	case <-t.C:
		return io.EOF
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if !closed && s.far.Err == nil && (s.far.Exit.Code == failed || s.far.Exit.Signal != 0) {
		return s.h.broke(s.reports.rest())
	}
	return io.EOF
}

func (s *stream) Write(p []byte) (int, error) { return s.far.In.Write(p) }

// Close ends the conversation. The shared connection stays.
func (s *stream) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.far.Leave(endTime)
	})
	return nil
}

// reports reads the standard error of the far side: its reports, whether the
// program was missing, and the rest, which is kept for errors.
type reports struct {
	progress func(string)
	word     string
	last     chan keeper.Report // has room for the one that ends the opening

	mu    sync.Mutex
	lines run.Lines
	said  []byte
	none  bool
	done  bool
}

func newReports(word string, progress func(string)) *reports {
	r := &reports{word: word, progress: progress, last: make(chan keeper.Report, 1)}
	r.lines = run.Lines{Most: maxLine, Take: r.take}
	return r
}

// maxLine bounds a line; what is longer is no report of ours.
const maxLine = 256 << 10

func (r *reports) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.Write(p)
}

// take reads one line.
func (r *reports) take(line string) {
	if !r.done {
		if last, ok := keeper.ReadReport(line, keeper.ConnectPrefix, r.progress); ok {
			if r.done = last != nil; r.done {
				r.last <- *last
			}
			return
		}
	}
	if line == r.word+" missing" {
		r.none = true
		return
	}
	r.said = append(append(r.said, line...), '\n')
	if over := len(r.said) - maxBanner; over > 0 {
		r.said = append(r.said[:0], r.said[over:]...)
	}
}

func (r *reports) missing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.none
}

// rest is what else was said.
func (r *reports) rest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.said) + r.lines.Rest()
}
