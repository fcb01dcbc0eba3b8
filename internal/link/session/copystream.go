package session

import (
	"context"
	"io"
	"os"
	"sync"

	"berth/internal/link/transfer"
	"berth/internal/link/wire"
)

// unpacked is what has become of a stream.
type unpacked struct {
	tally transfer.Tally
	at    string
	err   error
}

// arrival passes a stream to the function that unpacks it, as it comes: in
// frames, which are written, or out of a named pipe, which is read in place, so
// that nothing stands between the kernel and the files.
type arrival struct {
	unpack func(io.Reader) unpacked
	stop   context.CancelCauseFunc
	r      *io.PipeReader
	w      *io.PipeWriter
	begun  sync.Once
	done   chan struct{}
	result unpacked
}

func newArrival(unpack func(io.Reader) unpacked, stop context.CancelCauseFunc) *arrival {
	a := &arrival{unpack: unpack, stop: stop, done: make(chan struct{})}
	a.r, a.w = io.Pipe()
	return a
}

func (a *arrival) begin(r io.Reader) {
	a.begun.Do(func() {
		go func() {
			defer close(a.done)
			a.result = a.unpack(r)
			// Of a tree that cannot be kept, the rest is not wanted. Where there
			// is none, the guest may know better what is wrong.
			if p, ok := r.(*wire.Past); a.result.err != nil && !(ok && p.Ended()) {
				a.stop(a.result.err)
			}
			_ = a.r.CloseWithError(a.result.err) // a pipe without a reader needs no writer
		}()
	})
}

// Write takes what comes in frames.
func (a *arrival) Write(p []byte) (int, error) {
	a.begin(a.r)
	return a.w.Write(p)
}

// take takes what comes out of a pipe, before anything else.
func (a *arrival) take(p *wire.Past) error {
	a.begin(p)
	<-a.done
	return a.result.err
}

// end returns the result. An error is that the stream is not the whole: half of
// it is not a tree.
func (a *arrival) end(err error) unpacked {
	if err != nil {
		err = errEnded
	}
	_ = a.w.CloseWithError(err)
	a.begin(a.r)
	<-a.done
	return a.result
}

// packed is what has become of a tree that is sent.
type packed struct {
	tally transfer.Tally
	err   error
}

// departure is an arrival's other side: what is packed is read and sent in
// frames, or is written into a named pipe at once.
type departure struct {
	pack   func(io.Writer) packed
	r      *io.PipeReader
	w      *io.PipeWriter
	begun  sync.Once
	done   chan struct{}
	result packed
}

func newDeparture(pack func(io.Writer) packed) *departure {
	d := &departure{pack: pack, done: make(chan struct{})}
	d.r, d.w = io.Pipe()
	return d
}

func (d *departure) begin(w io.Writer) {
	d.begun.Do(func() {
		go func() {
			defer close(d.done)
			d.result = d.pack(w)
			_ = d.w.CloseWithError(d.result.err)
		}()
	})
}

// Read gives what goes out in frames.
func (d *departure) Read(b []byte) (int, error) {
	d.begin(d.w)
	return d.r.Read(b)
}

// give writes everything into a pipe. It is copied there: were the kernel to
// move it, whoever holds the other end could keep the pages of this machine's
// files, and see what is written to them later.
func (d *departure) give(w *os.File) error {
	d.begin(onlyWriter{w})
	<-d.done
	return d.result.err
}

// end returns the result when the rest of the stream is not wanted.
func (d *departure) end() packed {
	d.begun.Do(func() {
		d.result.err = errEnded
		close(d.done)
	})
	_ = d.r.CloseWithError(errEnded)
	<-d.done
	return d.result
}
