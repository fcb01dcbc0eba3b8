package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"berth/backends/external/protocol"
)

// answer takes what a program writes to its standard output, line by line. A
// write fails once the program has broken the protocol, so that one which
// floods sees its pipe closed.
type answer struct {
	progress func(string)
	spoke    chan struct{} // has a word after each line
	last     chan struct{} // closed when the last line is here
	// more takes what comes after an ok; nil is that nothing may.
	more func(line []byte) error
	over chan struct{} // closed when nothing of that is to come any more

	mu   sync.Mutex
	held []byte // of a line that is not whole
	told int    // lines of progress
	ok   json.RawMessage
	was  bool  // there was an ok, whatever has come after it
	err  error // the program's, or what is wrong with its words
	done bool
}

func newAnswer(progress func(string)) *answer {
	if progress == nil {
		progress = func(string) {}
	}
	return &answer{progress: progress, spoke: make(chan struct{}, 1), last: make(chan struct{}), over: make(chan struct{})}
}

func (a *answer) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part := b
		if i >= 0 {
			part = b[:i]
		}
		if len(a.held)+len(part) >= protocol.MaxLine {
			return 0, a.broken(fmt.Errorf("it wrote a line of more than %d bytes", protocol.MaxLine))
		}
		a.held = append(a.held, part...)
		if i < 0 {
			break
		}
		b = b[i+1:]
		line := a.held
		a.held = nil
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if a.done && a.ok != nil && a.more != nil {
			if err := a.more(line); err != nil {
				return 0, a.broken(err)
			}
			continue
		}
		if a.done {
			return 0, a.broken(errors.New("it went on after its answer: " + excerpt(line)))
		}
		if err := a.line(line); err != nil {
			return 0, a.broken(err)
		}
	}
	return n, nil
}

// broken notes what is wrong, for good. The caller holds a.mu.
func (a *answer) broken(err error) error {
	if a.err, a.ok = err, nil; a.done && a.more != nil {
		a.more = nil
		close(a.over)
	}
	a.finish()
	return err
}

func (a *answer) finish() {
	if !a.done {
		a.done = true
		close(a.last)
	}
}

func (a *answer) line(b []byte) error {
	l, err := parseLine(b)
	if err != nil {
		return err
	}
	switch {
	case l.Progress != nil:
		if a.told++; a.told > protocol.MaxProgress {
			return fmt.Errorf("it wrote more than %d lines of progress", protocol.MaxProgress)
		}
		a.progress(words(*l.Progress))
		select {
		case a.spoke <- struct{}{}:
		default:
		}
		return nil
	case l.Error != nil:
		a.err = l.Error
	default:
		a.ok, a.was = l.OK, true
	}
	a.finish()
	return nil
}

// get returns the answer, or the error, or neither.
func (a *answer) get() (json.RawMessage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil && a.ok == nil && len(bytes.TrimSpace(a.held)) > 0 {
		// A last line without its end may be a whole one, or cut off.
		if err := a.line(a.held); err != nil {
			a.err = err
		}
	}
	return a.ok, a.err
}

// began tells whether it has said ok.
func (a *answer) began() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.was
}

// parseLine reads a line, which must hold one of the three words, and an object
// with ok.
func parseLine(b []byte) (*protocol.Line, error) {
	var l protocol.Line
	if !utf8.Valid(b) { // it would be read as something else than was written
		return nil, errors.New("it wrote a line that is not UTF-8: " + excerpt(b))
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, errors.New("it wrote a line that is none of the protocol's: " + excerpt(b))
	}
	n := 0
	for _, is := range []bool{l.Progress != nil, l.OK != nil, l.Error != nil} {
		if is {
			n++
		}
	}
	if n != 1 || l.OK != nil && bytes.TrimSpace(l.OK)[0] != '{' {
		return nil, errors.New("it wrote a line that is none of the protocol's: " + excerpt(b))
	}
	return &l, nil
}

func excerpt(b []byte) string { return fmt.Sprintf("%.200q", b) }

// readAnswer reads lines up to the last one, byte by byte: what comes after it
// is not to be touched.
func readAnswer(r io.Reader) error {
	var line []byte
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(r, one); err != nil {
			if len(bytes.TrimSpace(line)) > 0 {
				if l, perr := parseLine(line); perr == nil && l.Error != nil {
					return l.Error
				}
				return errors.New("its last line is cut off: " + excerpt(line))
			}
			return err
		}
		if one[0] != '\n' {
			if line = append(line, one[0]); len(line) >= protocol.MaxLine {
				return fmt.Errorf("it wrote a line of more than %d bytes", protocol.MaxLine)
			}
			continue
		}
		if len(bytes.TrimSpace(line)) == 0 {
			line = line[:0]
			continue
		}
		l, err := parseLine(line)
		switch {
		case err != nil:
			return err
		case l.Error != nil:
			return l.Error
		case l.OK != nil:
			return nil
		}
		line = line[:0] // progress; the guest comes soon, or not at all
	}
}
