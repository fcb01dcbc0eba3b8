package wire

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
)

// Version is the version of the protocol.
const Version = 3

// What stands before the first frame of each side. They begin with a byte that
// no text holds.
const (
	ClientMagic = "\x00berth-client\n"
	GuestMagic  = "\x00berth-guest\n"
)

// MaxBanner bounds what may stand before the magic.
const MaxBanner = 256 << 10

// NonceSize is the length of the random bytes after the magic.
const NonceSize = 16

// Nonce is chosen by the client and repeated by the guest.
type Nonce [NonceSize]byte

// ErrNoHello says that the other side said something, but no hello.
var ErrNoHello = errors.New("no hello from the other side")

// NewNonce returns a random nonce.
func NewNonce() (n Nonce) {
	_, _ = rand.Read(n[:]) // never fails, see crypto/rand
	return n
}

// Open sends the magic, the nonce and a hello message in one write.
func (w *Writer) Open(magic string, n Nonce, hello any) error {
	head, err := opening(magic, n, hello)
	if err != nil {
		return err
	}
	return w.Say(Word{Bytes: head})
}

func opening(magic string, n Nonce, hello any) ([]byte, error) {
	var head bytes.Buffer
	head.WriteString(magic)
	head.Write(n[:])
	err := NewWriter(&head).Message(Hello, 0, hello)
	return head.Bytes(), err
}

// A Word is the first one of the side that wants a conversation: its hello behind a magic.
// It may be sent ahead, with the request for the way to the other side.
type Word struct {
	Bytes []byte
	nonce Nonce
}

// NewWord makes a word.
func NewWord(magic string, hello any) (w Word, err error) {
	w.nonce = NewNonce()
	w.Bytes, err = opening(magic, w.nonce, hello)
	return w, err
}

// Answered reads the answer to a word, which stands behind the magic theirs. The banner
// is what stood before that.
func (w *Word) Answered(in *Reader, theirs string, answer any) (banner []byte, err error) {
	if banner, err = in.Find(theirs, &w.nonce); err == nil {
		err = in.Hello(answer)
	}
	return banner, err
}

// Hail begins a conversation as the side that wants it: it sends its word, and reads the
// answer as [Word.Answered] does.
func Hail(in *Reader, out *Writer, mine, theirs string, hello, answer any) (banner []byte, err error) {
	w, err := NewWord(mine, hello)
	if err != nil {
		return nil, err
	}
	// The other side, when it ends at once, breaks this write, but what it said
	// first is the better explanation.
	_ = out.Say(w)
	return w.Answered(in, theirs, answer)
}

// Say sends a word.
func (w *Writer) Say(word Word) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		_, w.err = w.w.Write(word.Bytes)
	}
	return w.err
}

// Find skips to the end of the magic followed by the nonce, or of the magic
// alone when n is nil, and returns what it skipped.
func (r *Reader) Find(magic string, n *Nonce) (banner []byte, err error) {
	want := []byte(magic)
	if n != nil {
		want = append(want, n[:]...)
	}
	for {
		b, err := r.r.ReadByte()
		if err != nil {
			if err == io.EOF && len(banner) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return banner, err
		}
		banner = append(banner, b)
		if bytes.HasSuffix(banner, want) {
			return banner[:len(banner)-len(want)], nil
		}
		if len(banner) >= MaxBanner+len(want) {
			return banner, fmt.Errorf("%d bytes of something else: %w", len(banner), ErrNoHello)
		}
	}
}

// Nonce reads the bytes after the client's magic.
func (r *Reader) Nonce() (n Nonce, err error) {
	_, err = io.ReadFull(r.r, n[:])
	return n, err
}

// Hello reads the frame after the magic into v.
func (r *Reader) Hello(v any) error {
	f, err := r.Next()
	if err != nil {
		return err
	}
	if f.Type != Hello || f.Stream != 0 {
		return fmt.Errorf("frame of type %d: %w", f.Type, ErrNoHello)
	}
	return f.Decode(v)
}

// Greet is a guest's side of the handshake: it reads the client's hello, sends what
// answer makes of it, and seals both directions. An error of answer's is in what it
// returns, and ends the handshake.
func Greet(in *Reader, out *Writer, answer func(ClientHello, error) (GuestHello, error)) error {
	if _, err := in.Find(ClientMagic, nil); err != nil {
		return err
	}
	nonce, err := in.Nonce()
	if err != nil {
		return err
	}
	var hello ClientHello
	if err := in.Hello(&hello); err != nil {
		return err
	}
	key, err := KeyOf(hello.Key)
	said, err := answer(hello, err)
	if werr := out.Open(GuestMagic, nonce, said); err == nil {
		err = werr
	}
	if err != nil {
		return err
	}
	in.Seal(key, FromClient)
	out.Seal(key, FromGuest)
	return nil
}
