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

	// MostShown is the most that a caller may ask to be shown, in bytes.
	MostShown = 64 << 20
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
	bytes     int    // that are shown; 0 is ShownChars characters
	head      []byte
	tail      []byte // the last bytes after head, a ring once it is full
	at        int    // where the ring goes on
	total     int64
	file      *os.File
	err       error // of the file; what is shown is right in any case
}

// NewCapture returns a Capture that keeps long output below dir, in a file
// called by name and random letters. It shows so many bytes, cut between
// characters; 0 is [ShownChars] characters.
func NewCapture(dir, name string, bytes int) *Capture {
	return &Capture{dir: dir, name: name, bytes: bytes}
}

// window is what is shown, and what of each part is held in memory.
func (c *Capture) window() (shown, held int) {
	if c.bytes > 0 {
		return c.bytes, c.bytes
	}
	return ShownChars, shownBytes
}

// Write takes output. It never fails: what a full disk cannot hold is told by
// [Captured.FileError].
func (c *Capture) Write(p []byte) (int, error) {
	n := len(p)
	_, held := c.window()
	c.keep(p)
	c.total += int64(n)
	if room := held - len(c.head); room > 0 {
		k := min(room, len(p))
		c.head = append(c.head, p[:k]...)
		p = p[k:]
	}
	if over := len(p) - held; over > 0 {
		p = p[over:]
	}
	for len(p) > 0 {
		if len(c.tail) < held {
			k := min(held-len(c.tail), len(p))
			c.tail = append(c.tail, p[:k]...)
			p = p[k:]
			continue
		}
		k := copy(c.tail[c.at:], p)
		c.at = (c.at + k) % held
		p = p[k:]
	}
	return n, nil
}

// keep writes to the file, which begins when there is more than can be shown.
func (c *Capture) keep(p []byte) {
	if shown, _ := c.window(); c.file == nil && c.err == nil && c.total+int64(len(p)) > int64(shown) {
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
	shown, _ := c.window()
	length, first, last := utf8.RuneCountInString, firstRunes, lastRunes
	if c.bytes > 0 {
		length, first, last = func(s string) int { return len(s) }, firstBytes, lastBytes
	}
	if whole && (length(all) <= shown || c.total <= int64(shown)) {
		out.Text = all
	} else {
		out.Truncated = true
		headLength := int(float64(shown) * headShare)
		begins := first(strings.ToValidUTF8(string(c.head), "\uFFFD"), headLength)
		var ends string
		if whole {
			ends = last(all, shown-headLength)
			out.Omitted = int64(utf8.RuneCountInString(all) - utf8.RuneCountInString(begins) - utf8.RuneCountInString(ends))
		} else {
			ends = last(strings.ToValidUTF8(string(append(append([]byte{}, c.head...), tail...)), "\uFFFD"), shown-headLength)
			out.Omitted = max(1, c.total-int64(len(begins)+len(ends)))
		}
		where := ""
		if c.file != nil && c.err == nil {
			where = "; the whole output is in " + c.file.Name()
		}
		out.Text = begins + fmt.Sprintf("\n[... %d characters left out of %d bytes%s ...]\n", out.Omitted, c.total, where) + ends
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

// firstBytes and lastBytes cut between characters.
func firstBytes(s string, n int) string {
	for n = min(n, len(s)); n > 0 && n < len(s) && !utf8.RuneStart(s[n]); n-- {
	}
	return s[:n]
}

func lastBytes(s string, n int) string {
	i := max(0, len(s)-n)
	for ; i < len(s) && !utf8.RuneStart(s[i]); i++ {
	}
	return s[i:]
}
