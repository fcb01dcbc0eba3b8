package guest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"unicode/utf8"

	"berth/internal/link/transfer"
	"berth/internal/link/wire"

	"golang.org/x/sys/unix"
)

// Limits of a search.
const (
	searchLimit   = 200      // matches, when nobody says
	searchFile    = 8 << 20  // size of the largest file that is looked into
	searchLine    = 500      // bytes of a line that are shown
	searchPattern = 64 << 10 // length of the pattern
	searchDepth   = 200
	binaryProbe   = 8 << 10 // a NUL byte in so many first bytes is of a binary file
)

// searcher looks for lines.
type searcher struct {
	lister
	literal []byte
	re      *regexp.Regexp
	prefix  []byte // which every match begins with
	buf     []byte
}

func (o *fileOp) search(path string) (*wire.FileResult, error) {
	s := &searcher{lister: lister{o: o, answer: answer{left: o.req.Limit, room: answerLimit}, res: &wire.FileResult{}}}
	if s.answer.left <= 0 {
		s.answer.left = searchLimit
	}
	var err error
	if s.filter, err = newNameFilter(string(o.req.Glob)); err != nil {
		return nil, refuse(wire.FileInvalid, "the pattern for names: %v", err)
	}
	if err := s.compile(); err != nil {
		return nil, err
	}
	release, err := o.weigh()
	if err != nil {
		return nil, err
	}
	defer release()
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if fi.IsDir() {
		var root *os.Root
		if root, err = os.OpenRoot(path); err != nil {
			return nil, err
		}
		defer func() { _ = root.Close() }()
		err = s.directory(root, "", 0)
	} else {
		err = s.one(path)
	}
	if errors.Is(err, errFull) {
		s.res.Truncated, err = true, nil
	}
	s.res.Notes = unreadableNote(s.unreadable)
	s.res.Incomplete = s.unreadable > 0
	return s.res, err
}

// compile prepares the pattern.
func (s *searcher) compile() error {
	req := s.o.req
	pattern := string(req.Pattern)
	if pattern == "" || len(pattern) > searchPattern {
		return refuse(wire.FileInvalid, "the pattern is empty or longer than %d KiB", searchPattern>>10)
	}
	if req.Literal && !req.IgnoreCase {
		s.literal = []byte(pattern)
		return nil
	}
	if req.Literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	if req.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	var err error
	if s.re, err = regexp.Compile(pattern); err != nil {
		return refuse(wire.FileInvalid, "the pattern: %v", err)
	}
	prefix, _ := s.re.LiteralPrefix()
	s.prefix = []byte(prefix)
	return nil
}

// one searches a file that was named.
func (s *searcher) one(path string) error {
	f, fi, err := openRegular(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if fi.Size() > searchFile {
		return refuse(wire.FileTooLarge, "%s: larger than %d MiB, which is the most that is searched", quoted(path), searchFile>>20)
	}
	return s.file(f, filepath.Base(path))
}

// directory searches all files below.
func (s *searcher) directory(root *os.Root, at string, depth int) error {
	names, _, err := sortedNames(s.o, root, 1<<20)
	if err != nil && depth > 0 {
		s.unreadable++
		return s.o.aborted()
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.o.aborted(); err != nil {
			return err
		}
		if err := s.entry(root, name, at+name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *searcher) entry(root *os.Root, name, path string, depth int) error {
	fi, err := root.Lstat(name)
	if err != nil {
		return nil
	}
	switch {
	case fi.IsDir():
		if name == ".git" || depth >= searchDepth {
			return nil
		}
		sub, err := root.OpenRoot(name)
		if err != nil {
			s.unreadable++
			return nil
		}
		defer func() { _ = sub.Close() }()
		if transfer.OfKernel(sub) {
			return nil
		}
		return s.directory(sub, path+"/", depth+1)
	case fi.Mode().IsRegular() && fi.Size() > 0 && fi.Size() <= searchFile && s.filter.takes(path):
		f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != nil {
			s.unreadable++
			return nil
		}
		defer func() { _ = f.Close() }()
		if now, err := f.Stat(); err != nil || !os.SameFile(now, fi) {
			return nil
		}
		return s.file(f, path)
	}
	return nil
}

// file searches one file.
func (s *searcher) file(f *os.File, path string) error {
	text, err := s.load(f)
	if err != nil {
		s.unreadable++
		return s.o.aborted()
	}
	if bytes.IndexByte(text[:min(len(text), binaryProbe)], 0) >= 0 {
		return nil
	}
	emit := func(number int, line []byte) error {
		m := wire.FileMatch{Path: wire.Text(path), Line: number, Text: wire.Text(cutLine(line))}
		if !s.answer.takes(m) {
			return errFull
		}
		s.res.Matches = append(s.res.Matches, m)
		return nil
	}
	if s.re == nil {
		return literalLines(text, s.literal, emit)
	}
	if !bytes.Contains(text, s.prefix) {
		return nil
	}
	for number := 1; len(text) > 0; number++ {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		if s.re.Match(trimCR(line)) {
			if err := emit(number, line); err != nil {
				return err
			}
		}
		if number%4096 == 0 {
			if err := s.o.aborted(); err != nil {
				return err
			}
		}
	}
	return nil
}

// load reads a file into the one buffer.
func (s *searcher) load(f io.Reader) ([]byte, error) {
	s.buf = s.buf[:0]
	for {
		if len(s.buf) == cap(s.buf) {
			s.buf = append(s.buf, make([]byte, max(64<<10, len(s.buf)))...)[:len(s.buf)]
		}
		n, err := f.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+n]
		if errors.Is(err, io.EOF) || len(s.buf) > searchFile {
			return s.buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// literalLines finds the lines in which a text begins.
func literalLines(text, literal []byte, emit func(number int, line []byte) error) error {
	number, counted := 1, 0
	for at := 0; at < len(text); {
		i := bytes.Index(text[at:], literal)
		if i < 0 {
			return nil
		}
		begin := bytes.LastIndexByte(text[:at+i], '\n') + 1
		end := len(text)
		if n := bytes.IndexByte(text[at+i:], '\n'); n >= 0 {
			end = at + i + n
		}
		number += bytes.Count(text[counted:begin], []byte{'\n'})
		counted = begin
		if err := emit(number, text[begin:end]); err != nil {
			return err
		}
		at = end + 1
	}
	return nil
}

func trimCR(line []byte) []byte { return bytes.TrimSuffix(line, []byte{'\r'}) }

// cutLine is the part of a line that is shown; it ends with a whole character.
func cutLine(line []byte) string {
	line = trimCR(line)
	if len(line) <= searchLine {
		return string(line)
	}
	n := searchLine
	for n > searchLine-utf8.UTFMax && !utf8.RuneStart(line[n]) {
		n--
	}
	return string(line[:n])
}
