package ssh

import (
	"bytes"
	"io"
	"strconv"
	"sync"
)

// maxBanner bounds what is kept of the words before the command's own.
const maxBanner = 16 << 10

// begin passes on what comes after a line that begins with word, and takes out
// one later line end. It keeps the last words of what it did not pass on.
type begin struct {
	w     io.Writer     // nil discards
	word  []byte        // with the line break before it
	begun func(pid int) // told the number after the word; may be nil
	end   []byte        // nil is none

	mu     sync.Mutex
	passes bool
	ended  bool
	held   []byte // before the word: all; after it: what may be the beginning of end
	last   []byte // the last words passed on, for errors
}

func (b *begin) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.passes {
		return len(p), b.pass(p)
	}
	b.held = append(b.held, p...)
	i := bytes.Index(b.held, b.word)
	if i >= 0 {
		rest := b.held[i+len(b.word):]
		n := bytes.IndexByte(rest, '\n')
		if n < 0 {
			return len(p), nil
		}
		b.passes, b.held = true, nil
		if b.begun != nil {
			pid, _ := strconv.Atoi(string(rest[:n]))
			b.begun(pid)
		}
		return len(p), b.pass(rest[n+1:])
	}
	if over := len(b.held) - maxBanner; over > 0 {
		b.held = append(b.held[:0], b.held[over:]...)
	}
	return len(p), nil
}

// pass hands on what belongs to the command.
func (b *begin) pass(p []byte) error {
	if b.end != nil && !b.ended {
		p = append(b.held, p...)
		b.held = nil
		if i := bytes.Index(p, b.end); i >= 0 {
			b.ended = true
			p = append(p[:i:i], p[i+len(b.end):]...)
		} else if n := overlap(p, b.end); n > 0 {
			b.held = bytes.Clone(p[len(p)-n:])
			p = p[:len(p)-n]
		}
		b.last = append(b.last, p...)
		if over := len(b.last) - maxBanner/4; over > 0 {
			b.last = append(b.last[:0], b.last[over:]...)
		}
	}
	if b.w == nil || len(p) == 0 {
		return nil
	}
	_, err := b.w.Write(p)
	return err
}

// overlap returns how many of p's last bytes are the first of word.
func overlap(p, word []byte) int {
	for n := min(len(p), len(word)-1); n > 0; n-- {
		if bytes.HasPrefix(word, p[len(p)-n:]) {
			return n
		}
	}
	return 0
}

// flush hands on what was held back.
func (b *begin) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.passes && len(b.held) > 0 && b.w != nil {
		_, _ = b.w.Write(b.held)
		b.held = nil
	}
}

// found tells whether the line end has come.
func (b *begin) found() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// said returns the last words: before the command's own, or after.
func (b *begin) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.passes {
		return string(b.held)
	}
	return string(b.last)
}
