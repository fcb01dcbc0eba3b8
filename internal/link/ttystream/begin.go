package ttystream

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxNoise is how much may stand before the side inside is ready: a shell's
// greeting and prompt, the echo of a command.
const MaxNoise = 256 << 10

// Ready is the text by which the side inside, which was given the nonce, says
// that it has the terminal.
func Ready(nonce string) string {
	sum := sha256.Sum256([]byte("berth on a terminal " + nonce))
	return "\x02berth:" + hex.EncodeToString(sum[:16]) + "\x03"
}

// all are the values of a byte.
var all = func() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

// NoiseError says that no guest got ready on a terminal, and holds what was read of it.
type NoiseError struct {
	Text string // its last part, printable
	Err  error
}

func (e *NoiseError) Error() string {
	if e.Text == "" {
		return "nothing answered on the terminal: " + e.Err.Error()
	}
	return fmt.Sprintf("nothing answered on the terminal (%v); it shows %q", e.Err, e.Text)
}

// Unwrap returns how the reading ended.
func (e *NoiseError) Unwrap() error { return e.Err }

// Outside waits on r and w, which a service makes of a terminal, for the side
// inside that has the nonce. What that says to people goes to people, which may
// be nil. To give up waiting, r is made to fail.
func Outside(r io.Reader, w io.Writer, nonce string, people io.Writer) (*Link, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if err := find(in, Ready(nonce)); err != nil {
		return nil, err
	}
	if err := prove(in); err != nil {
		return nil, err
	}
	if _, err := w.Write(all); err != nil {
		return nil, err
	}
	l := newLink(w, people)
	go l.run(in)
	return l, nil
}

// prove reads the 256 values.
func prove(r io.Reader) error {
	got := make([]byte, len(all))
	if _, err := io.ReadFull(r, got); err != nil {
		return cut(err)
	}
	if !bytes.Equal(got, all) {
		return fmt.Errorf("%w: it does not pass every value of a byte", ErrBroken)
	}
	return nil
}

// find reads until after the text.
func find(r io.ByteReader, text string) error {
	var last []byte // the tail of what was read
	for n := 0; ; n++ {
		b, err := r.ReadByte()
		if err == nil && n > MaxNoise {
			err = errors.New("too much else was written there")
		}
		if err != nil {
			return &NoiseError{Text: printable(last), Err: cut(err)}
		}
		if last = append(last, b); len(last) > 4<<10 {
			last = append(last[:0], last[2<<10:]...)
		}
		if b == text[len(text)-1] && bytes.HasSuffix(last, []byte(text)) {
			return nil
		}
	}
}

// printable is the last part of a terminal's text, for a message.
func printable(b []byte) string {
	s := strings.Map(func(r rune) rune {
		if r == '\n' || r >= ' ' && r != 0x7f && r != '\uFFFD' {
			return r
		}
		return -1
	}, string(b))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = "..." + s[len(s)-300:]
	}
	return s
}
