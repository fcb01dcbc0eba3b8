package jobs

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckText refuses control characters (which includes line breaks) in a value
// that will stand in a job script or on a command line; what names the value
// in the error. An injected line in the head of a script would be a directive.
func CheckText(what, s string) error {
	if strings.ContainsFunc(s, controls) {
		return &Error{Kind: KindUsage, Msg: what + " holds a control character", Hint: "remove line breaks, tabs and escape characters from it"}
	}
	if !utf8.ValidString(s) {
		return &Error{Kind: KindUsage, Msg: what + " is not valid UTF-8", Hint: "write it in UTF-8"}
	}
	return nil
}

// Cell is a text for a table that a spreadsheet may open: one that begins as a formula does
// (= + - @, a tab or a carriage return) and is no number has an apostrophe before it.
func Cell(s string) string {
	if s == "" || s == "-" || !strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return s
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return s
	}
	return "'" + s
}

// Printable removes terminal control characters and bidirectional controls from
// untrusted text: a line must be what it looks like. Each such character becomes
// a space, and bytes that are no UTF-8 become U+FFFD.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if controls(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, s)
}

// controls tells whether a character is a control character or breaks a line.
func controls(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}
