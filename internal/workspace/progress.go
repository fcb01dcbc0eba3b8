package workspace

import (
	"bytes"
	"io"
	"strings"

	lazy "berth/internal/sys/pattern"
)

// A line of git's progress (progress.c of git): a title, and a percentage or a number. What the
// other side of a fetch does has "remote: " before it.
var progressLine = lazy.Lazy(`^(remote: )?[A-Z][A-Za-z ]+: +[0-9]+(%|, done\.|$| *\|)`)

// mostProgress bounds a line that is looked at as a whole.
const mostProgress = 4 << 10

// progress takes git's standard error apart: lines of its progress, which end in a carriage
// return or a newline, go to tell, and all else to rest.
type progress struct {
	tell func(line string)
	rest io.Writer
	line []byte
}

func (p *progress) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexAny(b, "\r\n")
		if i < 0 {
			p.line = append(p.line, b...)
			if len(p.line) > mostProgress {
				return n, p.pass()
			}
			return n, nil
		}
		p.line = append(p.line, b[:i+1]...)
		b = b[i+1:]
		if err := p.pass(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// pass passes on what is one line.
func (p *progress) pass() error {
	line := p.line
	p.line = p.line[:0]
	if text := strings.TrimSpace(string(line)); progressLine().MatchString(text) {
		p.tell(strings.TrimPrefix(text, "remote: "))
		return nil
	}
	_, err := p.rest.Write(line)
	return err
}

// Close passes on a last line that has no end.
func (p *progress) Close() error {
	if len(p.line) == 0 {
		return nil
	}
	return p.pass()
}
