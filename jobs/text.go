package jobs

import (
	"fmt"
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

// Shows reports whether a person sees a character: it is printable, and none that counts
// as a letter, mark or symbol and shows nothing, as fillers, tags, variation selectors and
// the blank of Braille do.
func Shows(r rune) bool {
	return unicode.IsPrint(r) && r != 0x2800 && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Escaped is untrusted text as one line in which a person sees each character: one that
// shows nothing, or drives a terminal, is its number, such as \u{200b}, and a byte that is
// no UTF-8 is \xff.
func Escaped(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case Shows(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// controls tells whether a character is a control character or breaks a line.
func controls(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}
