package run

import "bytes"

// Lines is a writer that hands over whole lines, as a program's standard error
// needs it that is read for words of ours. It is not safe for concurrent use.
type Lines struct {
	Take func(line string) // without the line break
	Most int               // bytes; the begin of a line that grows longer is thrown away
	part []byte
}

// Write never fails.
func (l *Lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		i := bytes.IndexByte(l.part, '\n')
		if i < 0 {
			break
		}
		line := string(l.part[:i])
		l.part = l.part[i+1:]
		l.Take(line)
	}
	if len(l.part) > l.Most {
		l.part = nil
	}
	return len(p), nil
}

// Rest is what has come of the line that has no end yet.
func (l *Lines) Rest() string { return string(l.part) }
