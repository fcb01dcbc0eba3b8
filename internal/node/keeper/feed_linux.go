package keeper

import (
	"context"
	"io"
	"sync"
)

// feed is the standard input of a background process: several clients may
// write to it, one after the other, and none holds the keeper up.
type feed struct {
	in     chan []byte
	ended  chan struct{} // closed with its last byte, or with the process
	ending sync.Once
	rest   []byte // of the reader
}

func newFeed() *feed { return &feed{in: make(chan []byte), ended: make(chan struct{})} }

// Read implements [io.Reader] for the one who sends it to the process.
func (f *feed) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		select {
		case f.rest = <-f.in:
		case <-f.ended:
			return 0, io.EOF
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// write hands bytes over; it waits until the one before was taken.
func (f *feed) write(ctx context.Context, p []byte) error {
	select {
	case f.in <- append([]byte(nil), p...):
		return nil
	case <-f.ended:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end is the end of the input.
func (f *feed) end() { f.ending.Do(func() { close(f.ended) }) }
