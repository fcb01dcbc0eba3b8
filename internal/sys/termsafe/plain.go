// Package termsafe keeps what a task has written from driving the terminal that it
// is shown on.
package termsafe

import (
	"bytes"
	"io"
	"unicode/utf8"
)

// How much a sequence may hold before it is taken for text whose beginning
// looked like one. Pictures come in strings of some 4 KiB.
const (
	maxSequence = 128
	maxString   = 8 << 10
)

const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	csi = 0x9b
	st  = 0x9c
)

// Writer passes text on, with colours (SGR), tabs, line breaks and carriage
// returns, and drops every other control function: cursor moves, clearing,
// titles, the clipboard, modes, reports, character sets. Nothing of a sequence is
// passed on before its end has been seen, however it is split over writes, so
// that the terminal is never left within one. What is no UTF-8 becomes U+FFFD.
//
// The states are those of the parser of ECMA-48 that terminals have
// (vt100.net/emu/dec_ansi_parser), less what only matters to who carries the
// functions out.
type Writer struct {
	to     io.Writer
	out    bytes.Buffer
	in     func(*Writer, rune) // what the next character is part of
	held   []byte              // of the sequence
	length int                 // of the string
	osc    bool                // it is one that ends with its line
	rest   []byte              // of a character
	colour bool                // passed on, and not reset since
}

// New returns a Writer to a terminal.
func New(to io.Writer) *Writer { return &Writer{to: to, in: (*Writer).text} }

// Write takes all of p, whole characters or not.
func (w *Writer) Write(p []byte) (int, error) {
	w.out.Reset()
	b := p
	if len(w.rest) > 0 {
		b = append(w.rest, p...)
	}
	for len(b) > 0 && utf8.FullRune(b) {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 && b[0] < 0xa0 {
			r = rune(b[0]) // a control function of 8 bits
		}
		w.in(w, r)
		b = b[n:]
	}
	w.rest = append([]byte(nil), b...)
	if _, err := w.to.Write(w.out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Reset takes the task's colours off the terminal, for what others write next,
// and forgets a sequence that has no end.
func (w *Writer) Reset() error {
	w.in, w.rest = (*Writer).text, nil
	if !w.colour {
		return nil
	}
	w.colour = false
	_, err := io.WriteString(w.to, "\x1b[0m")
	return err
}

func (w *Writer) text(r rune) {
	switch {
	case r == '\n' || r == '\r' || r == '\t' || r >= 0x20 && r < 0x7f || r >= 0xa0:
		w.out.WriteRune(r)
	case r == esc:
		w.in = (*Writer).escape
	case r >= 0x80:
		w.function(r)
	}
}

// function begins a control function of the set C1.
func (w *Writer) function(r rune) {
	w.in, w.held, w.length, w.osc = (*Writer).text, w.held[:0], 0, r == 0x9d
	switch r {
	case csi:
		w.in = (*Writer).sequence
	case 0x90, 0x98, 0x9d, 0x9e, 0x9f: // DCS, SOS, OSC, PM, APC
		w.in = (*Writer).string
	}
}

// escape is after ESC: a function of C1 in 7 bits, or one of two or more
// characters.
func (w *Writer) escape(r rune) {
	switch {
	case r >= 0x40 && r < 0x60:
		w.function(r + 0x40)
	case r >= 0x20 && r < 0x30:
		w.in = (*Writer).intermediate
	case r >= 0x30 && r < 0x7f:
		w.in = (*Writer).text
	default:
		w.again(r)
	}
}

func (w *Writer) intermediate(r rune) {
	switch {
	case r >= 0x20 && r < 0x30: // more of it
	case r >= 0x30 && r < 0x7f:
		w.in = (*Writer).text
	default:
		w.again(r)
	}
}

// sequence is after CSI: parameters, then one character that says what it is.
func (w *Writer) sequence(r rune) {
	switch {
	case r >= 0x20 && r < 0x40 && len(w.held) < maxSequence:
		w.held = append(w.held, byte(r))
	case r >= 0x40 && r < 0x7f:
		w.in = (*Writer).text
		// Other characters among the parameters make it another function, of
		// the keyboard for example.
		if r == 'm' && len(bytes.Trim(w.held, "0123456789;:")) == 0 {
			w.colour = len(w.held) > 0 && string(w.held) != "0"
			w.out.WriteString("\x1b[")
			w.out.Write(w.held)
			w.out.WriteByte('m')
		}
	default:
		w.again(r)
	}
}

// string is after OSC, DCS, SOS, PM and APC: all up to ST, or BEL.
func (w *Writer) string(r rune) {
	switch w.length++; {
	case r == bel || r == can || r == sub || r == st:
		w.in = (*Writer).text
	case r == esc: // of ST; else something else begins
		w.in = (*Writer).escape
	case w.length > maxString || w.osc && (r == '\n' || r == '\r'):
		w.again(r)
	}
}

// again ends what was no function of the terminal's: r is text, or begins
// another.
func (w *Writer) again(r rune) {
	w.in = (*Writer).text
	w.text(r)
}
