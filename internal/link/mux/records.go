package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"berth/jobs"
)

// What the two sides of a named pipe say to each other, see [farPipe]. A
// record is its kind, a number of 8 bytes, and, for recBytes and recTrouble, as
// many bytes as that says.
const (
	recGo      = 'G' // near: the guest has the pipe open
	recEnd     = 'N' // near: the guest has closed it
	recBytes   = 'D' // some bytes
	recChunk   = 'F' // the next file; the number is its size
	recTaken   = 'A' // that is done with
	recOver    = 'E' // no more comes; far, of input: all of it is in the pipe
	recTrouble = 'X' // far: why there is no more
)

// maxRecord bounds the bytes of a record.
const maxRecord = 1 << 20

// records writes records; it is safe for concurrent use.
type records struct {
	mu sync.Mutex
	w  io.Writer
}

func (r *records) put(kind byte, n int64, p []byte) error {
	b := append(make([]byte, 0, 9+len(p)), kind)
	b = binary.BigEndian.AppendUint64(b, uint64(n))
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.w.Write(append(b, p...))
	return err
}

func (r *records) trouble(err error) error {
	text := jobs.Printable(err.Error())
	text = text[:min(len(text), 4<<10)]
	return r.put(recTrouble, int64(len(text)), []byte(text))
}

// take reads the head of a record.
func take(r io.Reader) (kind byte, n int64, err error) {
	var h [9]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, 0, err
	}
	kind, n = h[0], int64(binary.BigEndian.Uint64(h[1:]))
	most := int64(chunkSize)
	if kind == recBytes || kind == recTrouble {
		most = maxRecord
	}
	if n < 0 || n > most {
		return 0, 0, fmt.Errorf("a record %q of %d bytes", kind, n)
	}
	return kind, n, nil
}

// takeTrouble reads the text of a recTrouble.
func takeTrouble(r io.Reader, n int64) error {
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return errors.New("on the far side: " + jobs.Printable(string(b)))
}
