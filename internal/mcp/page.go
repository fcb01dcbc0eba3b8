package mcp

import (
	"errors"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// Pages, in bytes.
const (
	usualPage = 30_000
	mostPage  = 1 << 20
)

// A Page is a part of a text.
type Page struct {
	Text       string `json:"text" jsonschema:"the part from offset on, without control characters"`
	Offset     int64  `json:"offset" jsonschema:"in bytes from the beginning"`
	NextOffset int64  `json:"next_offset" jsonschema:"where the next page begins"`
	More       bool   `json:"more" jsonschema:"there is more at next_offset now"`
}

// span is what of a text is asked for.
type span struct {
	Offset int64 `json:"offset,omitempty" jsonschema:"byte to begin at; default 0"`
	Limit  int64 `json:"limit,omitempty" jsonschema:"bytes at most; default 30000, at most 1048576"`
}

func (p span) check() (span, error) {
	if p.Limit == 0 {
		p.Limit = usualPage
	}
	if p.Offset < 0 || p.Limit < 0 || p.Limit > mostPage {
		return p, &jobs.Error{Kind: jobs.KindUsage, Msg: "offset must be 0 or more, and limit from 1 to 1048576"}
	}
	return p, nil
}

// errFull ends the writing of a text of which the page is full.
var errFull = errors.New("the page is full")

// window takes the part of a text that a page shows. It takes a byte more than that, by
// which it is known that there is more.
type window struct {
	span
	at  int64 // of the text
	got []byte
}

// Write takes all, until the page is full.
func (w *window) Write(p []byte) (int, error) {
	n := len(p)
	if skip := min(int64(len(p)), max(0, w.Offset-w.at)); skip > 0 {
		p = p[skip:]
	}
	room := w.Limit + 1 - int64(len(w.got))
	w.got = append(w.got, p[:min(int64(len(p)), max(0, room))]...)
	w.at += int64(n)
	if int64(len(w.got)) > w.Limit {
		return n, errFull
	}
	return n, nil
}

// page is what was taken. A character that is cut in two stands on the next page.
func (w *window) page() Page {
	more := int64(len(w.got)) > w.Limit
	b := w.got[:min(int64(len(w.got)), w.Limit)]
	if cut := incomplete(b); more && cut < len(b) {
		b = b[:len(b)-cut]
	}
	return Page{Text: plain(b), Offset: w.Offset, NextOffset: w.Offset + int64(len(b)), More: more}
}

// incomplete is how many bytes at the end are the beginning of a character.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// plain is a text without what would drive a terminal: a client may show it on one.
func plain(b []byte) string {
	lines := strings.Split(string(b), "\n")
	for i, l := range lines {
		parts := strings.Split(strings.TrimSuffix(l, "\r"), "\t")
		for j, p := range parts {
			parts[j] = jobs.Printable(p)
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}

// whole reads a page of what write writes.
func whole(p span, write func(io.Writer) error) (Page, error) {
	p, err := p.check()
	if err != nil {
		return Page{}, err
	}
	w := &window{span: p}
	if err := write(w); err != nil && !errors.Is(err, errFull) {
		return Page{}, err
	}
	return w.page(), nil
}

// outputs are files with the whole output of commands of which a part was shown. The
// client knows them by a name, and by no path.
type outputs struct {
	mu    sync.Mutex
	n     int
	names []string
	paths map[string]string
}

// mostOutputs is how many of the last are kept in mind.
const mostOutputs = 64

// add returns the name of a file.
func (o *outputs) add(path string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.paths == nil {
		o.paths = map[string]string{}
	}
	o.n++
	name := outputName(o.n)
	o.names, o.paths[name] = append(o.names, name), path
	if len(o.names) > mostOutputs {
		delete(o.paths, o.names[0])
		o.names = o.names[1:]
	}
	return name
}

// find returns the path of a name.
func (o *outputs) find(name string) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path, ok := o.paths[name]
	return path, ok
}

// readFile reads a page of a file of this machine.
func readFile(path string, p span) (Page, error) {
	return whole(p, func(w io.Writer) error {
		f, err := disk.OpenRegular(path)
		if err != nil {
			return &jobs.Error{Kind: jobs.KindNotFound, Msg: "the output is not kept any more", Err: err}
		}
		defer func() { _ = f.Close() }()
		_, err = io.Copy(w, f)
		return err
	})
}
