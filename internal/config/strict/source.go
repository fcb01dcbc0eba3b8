package strict

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"berth/jobs"
)

// Limits of a file. Front matter is bounded more tightly than its file: the
// parsers below recurse, and a prompt is the only thing that may be long.
const (
	MaxFile  = 1 << 20
	maxFront = 64 << 10
)

// clean returns the text of a file with line breaks as "\n" and no byte order
// mark, or why it is not text.
func clean(file string, data []byte) (string, error) {
	if len(data) > MaxFile {
		return "", refuse(file, 0, "", "the file has more than %s", jobs.Bytes(MaxFile))
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return "", refuse(file, 0, "save the file as UTF-8", "the file is UTF-16")
	}
	s := strings.TrimPrefix(string(data), "\ufeff")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	if i := strings.IndexByte(s, 0); i >= 0 {
		return "", refuse(file, lineAt(s, i), "", "the file is binary: it holds a NUL byte")
	}
	if !utf8.ValidString(s) {
		for i, r := range s {
			if _, n := utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError && n <= 1 {
				return "", refuse(file, lineAt(s, i), "save the file as UTF-8", "the text is not UTF-8")
			}
		}
	}
	return s, nil
}

// checkKeys refuses control characters in the part of a file that holds keys;
// some count as line breaks to one reader and not to another.
func checkKeys(file, s string) error {
	for i, r := range s {
		if r != '\n' && r != '\t' && isControl(r) {
			return refuse(file, lineAt(s, i), "remove it", "the line holds the control character U+%04X", r)
		}
	}
	return nil
}

func isControl(r rune) bool {
	return r < 0x20 || (r >= 0x7f && r < 0xa0) || r == '\u2028' || r == '\u2029'
}

func lineAt(s string, i int) int { return strings.Count(s[:i], "\n") + 1 }

// refuse makes the error for one place of a file; line 0 is the whole file.
func refuse(file string, line int, hint, format string, args ...any) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: place(file, line) + fmt.Sprintf(format, args...), Hint: hint}
}

// place names a line of a file so that a hostile file name stays text.
func place(file string, line int) string {
	if jobs.CheckText("", file) != nil {
		file = quote(file)
	}
	if line == 0 {
		return file + ": "
	}
	return fmt.Sprintf("%s:%d: ", file, line)
}
