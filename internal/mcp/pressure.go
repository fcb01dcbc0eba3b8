package mcp

import (
	"bufio"
	"context"
	"io"
	"sync"
)

// mostUnanswered is how many messages of a client are read while it does not take an answer that is
// ready for it.
const mostUnanswered = 64

// pressure holds a client's messages back while it does not read: the library queues whatever it is given,
// without a bound. While a message to the client is on its way, no more than mostUnanswered others are
// read from it; then nothing is, until it reads.
type pressure struct {
	mu      sync.Mutex
	free    *sync.Cond
	writing int // writes under way
	read    int // messages since none was, or since the last one was taken
	ended   bool
}

// pressed are streams with such a bound. It ends with the context.
func pressed(ctx context.Context, in io.ReadCloser, out io.WriteCloser) (io.ReadCloser, io.WriteCloser, func() bool) {
	p := &pressure{}
	p.free = sync.NewCond(&p.mu)
	r := &pressedReader{pressure: p, in: in, lines: bufio.NewReaderSize(in, 64<<10)}
	return r, &pressedWriter{pressure: p, out: out}, context.AfterFunc(ctx, p.end)
}

func (p *pressure) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.free.Broadcast()
}

// pressedReader passes on one message at a time.
type pressedReader struct {
	*pressure
	in    io.ReadCloser
	lines *bufio.Reader
	rest  []byte // of the piece that is passed on; it is the buffer's
}

func (r *pressedReader) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		r.mu.Lock()
		for r.writing > 0 && r.read >= mostUnanswered && !r.ended {
			r.free.Wait()
		}
		r.mu.Unlock()
		// A piece is a line, or as much of one as the buffer holds.
		piece, err := r.lines.ReadSlice('\n')
		if len(piece) == 0 {
			return 0, err
		}
		if piece[len(piece)-1] == '\n' {
			r.mu.Lock()
			r.read++
			r.mu.Unlock()
		}
		r.rest = piece
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *pressedReader) Close() error {
	r.end()
	return r.in.Close()
}

// pressedWriter notes when the client takes what is written.
type pressedWriter struct {
	*pressure
	out io.WriteCloser
}

func (w *pressedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	if w.writing++; w.writing == 1 {
		w.read = 0
	}
	w.mu.Unlock()
	n, err := w.out.Write(b)
	w.mu.Lock()
	w.writing--
	w.read = 0
	w.free.Broadcast()
	w.mu.Unlock()
	return n, err
}

func (w *pressedWriter) Close() error { return w.out.Close() }
