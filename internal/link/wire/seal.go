package wire

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// KeySize is the length of a key.
const KeySize = 32

// sealSize is the length of the seal at the end of each frame.
const sealSize = 16

// Key is chosen by the client for one conversation. It seals the frames.
type Key [KeySize]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails, see crypto/rand
	return k
}

// KeyOf reads the key of a hello.
func KeyOf(b []byte) (k Key, err error) {
	if len(b) != KeySize {
		return k, fmt.Errorf("a key of %d bytes, not of %d", len(b), KeySize)
	}
	copy(k[:], b)
	return k, nil
}

// Side tells whose frames are sealed: one side's frame is never good as the
// other's.
type Side string

// The sides.
const (
	FromClient Side = "client"
	FromGuest  Side = "guest"
)

// ErrTampered is a frame that the other side has not sent, or not at this
// place: it was forged, replayed, or one before it was taken away.
var ErrTampered = errors.New("the stream to the guest was tampered with")

// sealer makes the seals of one side's frames. The count of the frames is the
// nonce of each seal and not on the wire: both sides know it.
type sealer struct {
	mac   cipher.AEAD
	count uint64
	nonce [12]byte
	buf   [sealSize]byte
}

func newSealer(k Key, from Side) *sealer {
	own := hmac.New(sha256.New, k[:])
	_, _ = own.Write([]byte("berth frames from the " + from))
	block, err := aes.NewCipher(own.Sum(nil))
	if err != nil {
		panic(err) // 32 bytes are a good key
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // it is a block cipher of 128 bits
	}
	return &sealer{mac: gcm}
}

// next returns the seal of the next frame; it is valid until the next call.
func (s *sealer) next(frame []byte) []byte {
	binary.BigEndian.PutUint64(s.nonce[4:], s.count)
	s.count++
	return s.mac.Seal(s.buf[:0], s.nonce[:], nil, frame)
}

// check takes the seal off what a frame holds; frame is its header and that.
func (s *sealer) check(frame []byte) (payload []byte, err error) {
	n := len(frame) - sealSize
	if n < header || !hmac.Equal(frame[n:], s.next(frame[:n])) {
		return nil, ErrTampered
	}
	return frame[header:n], nil
}

// Seal seals all that is written from now on.
func (w *Writer) Seal(k Key, from Side) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seal = newSealer(k, from)
}

// Seal asks for a seal in every frame from now on.
func (r *Reader) Seal(k Key, from Side) { r.seal = newSealer(k, from) }
