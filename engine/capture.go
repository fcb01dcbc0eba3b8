package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// What is shown of long output: so many characters, of which this share is the
// beginning and the rest the end. The numbers are those that agents are used to.
const (
	ShownChars = 50_000
	headShare  = 0.4
)

// shownBytes bounds what a Capture holds of each part in memory: a character
// of UTF-8 has at most 4 bytes.
const shownBytes = 4 * ShownChars

// keptFor is how long the files of whole outputs stay.
const keptFor = 7 * 24 * time.Hour

// Capture takes the output of a command. It remembers as much as is shown of it;
// when there is more, the whole of it is in a file.
type Capture struct {
	dir, name string // of the file
	head      []byte
	tail      []byte // the last bytes after head, a ring once it is full
	at        int    // where the ring goes on
	total     int64
	file      *os.File
	err       error // of the file; what is shown is right in any case
}

// NewCapture returns a Capture that keeps long output below dir, in a file
// called by name and random letters.
func NewCapture(dir, name string) *Capture { return &Capture{dir: dir, name: name} }

// Write takes output. It never fails: what a full disk cannot hold is told by
// [Captured.FileError].
func (c *Capture) Write(p []byte) (int, error) {
	n := len(p)
	c.keep(p)
	c.total += int64(n)
	if room := shownBytes - len(c.head); room > 0 {
		k := min(room, len(p))
		c.head = append(c.head, p[:k]...)
		p = p[k:]
	}
	if over := len(p) - shownBytes; over > 0 {
		p = p[over:]
	}
	for len(p) > 0 {
		if len(c.tail) < shownBytes {
			k := min(shownBytes-len(c.tail), len(p))
			c.tail = append(c.tail, p[:k]...)
			p = p[k:]
			continue
		}
		k := copy(c.tail[c.at:], p)
		c.at = (c.at + k) % shownBytes
		p = p[k:]
	}
	return n, nil
}

// keep writes to the file, which begins when there is more than can be shown.
func (c *Capture) keep(p []byte) {
	if c.file == nil && c.err == nil && c.total+int64(len(p)) > ShownChars {
		c.file, c.err = newOutputFile(c.dir, c.name)
		if c.err == nil {
			// All before is in memory: it is less than what is shown.
			_, c.err = c.file.Write(c.head)
		}
	}
	if c.file != nil && c.err == nil {
		_, c.err = c.file.Write(p)
	}
}

// newOutputFile makes a private file, and removes old ones beside it.
func newOutputFile(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && strings.HasSuffix(e.Name(), outputSuffix) && time.Since(fi.ModTime()) > keptFor {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return os.CreateTemp(dir, name+"-*"+outputSuffix)
}

const outputSuffix = ".out"

// Captured is what came of a Capture.
type Captured struct {
	// Text is what is shown: valid UTF-8, with a line that says what was left
	// out where it is not all.
	Text      string
	Bytes     int64 // that the command wrote
	Truncated bool
	Omitted   int64  // characters, or bytes where the output is no UTF-8, that are not shown
	File      string // where the whole output is, when Truncated
	FileError error
}

// Done ends the capture. A file stays only when the output is not all shown.
func (c *Capture) Done() Captured {
	out := Captured{Bytes: c.total, FileError: c.err}
	tail := append(append([]byte{}, c.tail[c.at:]...), c.tail[:c.at]...)
	whole := c.total == int64(len(c.head)+len(tail))
	var all string
	if whole {
		all = strings.ToValidUTF8(string(c.head)+string(tail), "\uFFFD")
	}
	if whole && utf8.RuneCountInString(all) <= ShownChars {
		out.Text = all
	} else {
		out.Truncated = true
		headRunes := int(ShownChars * headShare)
		first := firstRunes(strings.ToValidUTF8(string(c.head), "\uFFFD"), headRunes)
		var last string
		if whole {
			last = lastRunes(all, ShownChars-headRunes)
			out.Omitted = int64(utf8.RuneCountInString(all) - ShownChars)
		} else {
			last = lastRunes(strings.ToValidUTF8(string(append(append([]byte{}, c.head...), tail...)), "\uFFFD"), ShownChars-headRunes)
			out.Omitted = max(1, c.total-int64(len(first)+len(last)))
		}
		where := ""
		if c.file != nil && c.err == nil {
			where = "; the whole output is in " + c.file.Name()
		}
		out.Text = first + fmt.Sprintf("\n[... %d characters left out of %d bytes%s ...]\n", out.Omitted, c.total, where) + last
	}
	if c.file != nil {
		cerr := c.file.Close()
		if out.FileError == nil {
			out.FileError = cerr
		}
		if out.Truncated && out.FileError == nil {
			out.File = c.file.Name()
		} else {
			_ = os.Remove(c.file.Name())
		}
	}
	return out
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

func lastRunes(s string, n int) string {
	i := len(s)
	for ; n > 0 && i > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		i -= size
	}
	return s[i:]
}
