package top

import (
	"strings"
	"sync"

	"berth/internal/sys/termsafe"
	"berth/jobs"

	"github.com/charmbracelet/x/ansi"
)

// mostLines bounds the lines of an output that are kept, and mostLine one of them in bytes.
const (
	mostLines = 2000
	mostLine  = 4 << 10
)

// Lines keeps the last lines of an output, without anything that drives a terminal.
type Lines struct {
	mu    sync.Mutex
	lines []string
	part  []byte // the last line, which has no end yet
}

// Stream returns a writer to the lines for one stream: sequences that it does not end do not
// reach into another one.
func (l *Lines) Stream() *termsafe.Writer { return termsafe.New(l) }

// Write takes what [Lines.Stream] has passed on.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range p {
		switch {
		case b == '\n':
			l.lines = append(l.lines, string(l.part))
			l.part = l.part[:0]
		case len(l.part) < mostLine:
			l.part = append(l.part, b)
		}
	}
	if n := len(l.lines) - mostLines; n > 0 {
		l.lines = append(l.lines[:0], l.lines[n:]...)
	}
	return len(p), nil
}

// last returns n lines as they are shown, above those that are skipped at the end; more is how
// many could be skipped.
func (l *Lines) last(n, skip int) (out []string, more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.lines
	if len(l.part) > 0 {
		all = append(all[:len(all):len(all)], string(l.part))
	}
	more = max(len(all)-n, 0)
	end := len(all) - min(skip, more)
	for _, s := range all[max(end-n, 0):end] {
		out = append(out, shownLine(s))
	}
	return out, more
}

// shownLine is a line as a terminal without colours would leave it: what stands before a
// carriage return was overwritten.
func shownLine(s string) string {
	s = strings.TrimRight(ansi.Strip(s), "\r")
	if i := strings.LastIndexByte(s, '\r'); i >= 0 {
		s = s[i+1:]
	}
	return jobs.Printable(strings.ReplaceAll(s, "\t", "    "))
}
