package strict

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// Err ends the reading: it adds every key that was not taken, and returns all
// complaints as one error, one line each in the order of the file, or nil.
func (d *Doc) Err() error {
	for _, t := range d.tables {
		t.unknown()
	}
	d.tables = nil
	if len(d.issues) == 0 {
		return nil
	}
	slices.SortStableFunc(d.issues, func(a, b issue) int { return a.line - b.line })
	var lines []string
	hint := ""
	for i, is := range d.issues {
		if i == maxIssues {
			lines = append(lines, fmt.Sprintf("%s: and %d more", d.file, len(d.issues)-i))
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
