package strict

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"berth/jobs"
)

// maxIssues is how many complaints one error tells.
const maxIssues = 10

// Doc is a file being read: its keys, and the complaints so far.
type Doc struct {
	file   string
	format Format
	start  int // line to name when something is missing; 0 is the first
	root   *Reader
	issues []issue
	labels []string  // of a document of flags: what stands for a line's place
	tables []*Reader // every table that was asked for
}

type issue struct {
	line int
	msg  string
	hint string
	warn bool
}

// Finding is one thing that is said of a file. A warning is no error.
type Finding struct {
	Line    int    `json:"line"` // from 1; 0 is the whole file
	Warning bool   `json:"warning"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func newDoc(file string, format Format, root *node) *Doc {
	d := &Doc{file: file, format: format}
	d.root = d.reader("", "", root, 0)
	return d
}

// Root returns the reader of the outermost table.
func (d *Doc) Root() *Reader { return d.root }

// Failf adds a complaint about a line.
func (d *Doc) Failf(line int, hint, format string, args ...any) {
	d.issues = append(d.issues, issue{line: max(line, 1), msg: fmt.Sprintf(format, args...), hint: hint})
}

// At returns the value of a key that others read, table first. It makes no key known.
func (d *Doc) At(path ...string) Value {
	n, v := d.root.node, Value{doc: d, name: strings.Join(path, "."), line: max(d.start, 1)}
	for i, name := range path {
		at := slices.IndexFunc(n.keys, func(e entry) bool { return e.name == name })
		if at < 0 {
			return v
		}
		e := n.keys[at]
		if n = e.value; i == len(path)-1 {
			v.node, v.line = n, e.line
		} else if n.kind != Table {
			return v
		}
	}
	return v
}

// Key returns the value of a key of a table that others read. It makes no key known.
func (v Value) Key(name string) Value {
	out := Value{doc: v.doc, name: v.name + "." + name, line: v.line}
	if !v.Is(Table) {
		return out
	}
	if at := slices.IndexFunc(v.node.keys, func(e entry) bool { return e.name == name }); at >= 0 {
		out.node, out.line = v.node.keys[at].value, v.node.keys[at].line
	}
	return out
}

// Warnf adds a warning about a line: [Doc.Err] leaves it out, [Doc.Findings] has it.
func (d *Doc) Warnf(line int, hint, format string, args ...any) {
	d.issues = append(d.issues, issue{line: max(line, 1), msg: fmt.Sprintf(format, args...), hint: hint, warn: true})
}

// end ends the reading: it adds every key that was not taken, and sorts.
func (d *Doc) end() {
	for _, t := range d.tables {
		t.unknown()
	}
	d.tables = nil
	slices.SortStableFunc(d.issues, func(a, b issue) int { return a.line - b.line })
}

// Findings ends the reading and returns all complaints and warnings in the order of the
// file.
func (d *Doc) Findings() []Finding {
	d.end()
	out := make([]Finding, len(d.issues))
	for i, is := range d.issues {
		out[i] = Finding{Line: is.line, Warning: is.warn, Message: is.msg, Hint: is.hint}
	}
	return out
}

// Located makes findings of an error that names lines of the file.
func Located(file string, err error) (out []Finding) {
	for text := range strings.SplitSeq(err.Error(), "\n") {
		f := Finding{Message: strings.TrimPrefix(text, place(file, 0))}
		if rest, ok := strings.CutPrefix(text, strings.TrimSuffix(place(file, 0), " ")); ok {
			digits, msg, _ := strings.Cut(rest, ": ")
			if n, err := strconv.Atoi(digits); err == nil {
				f.Line, f.Message = n, msg
			}
		}
		out = append(out, f)
	}
	out[len(out)-1].Hint = jobs.HintOf(err)
	return out
}

// LineOf guesses the line of which an error speaks that was found by other means than
// reading: that of a string that is quoted in its text, else of the longest key, else of
// the longest string, that stands there as a word; the first line where there is none.
func (d *Doc) LineOf(text string) int {
	line, key, value, quoted := max(d.start, 1), "", "", false
	holds := func(word string) bool {
		i := strings.Index(text, word)
		letter := func(i int) bool {
			return i >= 0 && i < len(text) && (text[i] == '_' || unicode.IsLetter(rune(text[i])) || unicode.IsDigit(rune(text[i])))
		}
		return len(word) > 2 && i >= 0 && !letter(i-1) && !letter(i+len(word))
	}
	var visit func(n *node, at int)
	visit = func(n *node, at int) {
		if n == nil {
			return
		}
		switch {
		case n.kind != String || quoted:
		case len(n.text) > 2 && strings.Contains(text, quote(n.text)):
			quoted, line = true, at
		case key == "" && len(n.text) > len(value) && holds(n.text):
			value, line = n.text, at
		}
		for _, i := range n.items {
			visit(i, i.line)
		}
		for _, e := range n.keys {
			if !quoted && len(e.name) > len(key) && holds(e.name) {
				key, line = e.name, e.line
			}
			visit(e.value, e.line)
		}
	}
	visit(d.root.node, line)
	return line
}

// Err ends the reading and returns all complaints as one error, one line each in the
// order of the file, or nil.
func (d *Doc) Err() error {
	d.end()
	issues := slices.DeleteFunc(slices.Clone(d.issues), func(is issue) bool { return is.warn })
	if len(issues) == 0 {
		return nil
	}
	var lines []string
	hint := ""
	for i, is := range issues {
		if i == maxIssues {
			lines = append(lines, fmt.Sprintf("%s: and %d more", d.file, len(issues)-i))
			break
		}
		lines = append(lines, d.place(is.line)+is.msg)
		if hint == "" {
			hint = is.hint
		}
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: strings.Join(lines, "\n"), Hint: hint}
}

func (d *Doc) place(line int) string {
	if line <= len(d.labels) {
		return d.labels[line-1] + " "
	}
	return place(d.file, line)
}

// ReadFile reads a file of at most [MaxFile] bytes; what names it in errors.
func ReadFile(path, what string) ([]byte, error) {
	path = filepath.Clean(path)
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("%s %s does not exist", what, path)}
	case err != nil:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "read the " + what, Err: err}
	case info.IsDir():
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s is a directory, not a %s", path, what)}
	case !info.Mode().IsRegular():
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s is not a regular file", path)}
	case info.Size() > MaxFile:
		return nil, refuse(path, 0, "", "the file has more than %s", jobs.Bytes(MaxFile))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "read the " + what, Err: err}
	}
	return data, nil
}
