package guest

import (
	"context"
	"io"
	"os"
	"sync"

	"berth/internal/link/wire"
)

// fileInput is what the client sends. It ends with io.EOF only when the client
// has ended it: a write must not take half for the whole.
type fileInput struct {
	past  *wire.Past // comes first, or nil; its end alone says nothing
	spent func()     // past is not read any more
	rest  *io.PipeReader
	fed   chan struct{} // closed when all that was sent has come
}

// input begins to take what the client sends. past is a named pipe for it, or
// nil.
func (o *fileOp) input(past *os.File) *fileInput {
	r, w := io.Pipe()
	in := &fileInput{rest: r, spent: func() {}, fed: make(chan struct{})}
	if o.stdin == nil {
		close(in.fed)
		_ = w.Close()
		return in
	}
	spent := make(chan struct{})
	if past != nil {
		in.past, in.spent = wire.NewPast(past), sync.OnceFunc(func() { close(spent) })
	} else {
		close(spent)
	}
	o.s.guard(func() {
		defer close(in.fed)
		if past != nil {
			closed := context.AfterFunc(o.ctx, func() { _ = past.Close() })
			<-spent
			closed()
			_ = past.Close()
		}
		_ = o.stdin.Drain(w, o.s.out.Credits(wire.Stdin, o.stream))
		_ = w.CloseWithError(context.Cause(o.ctx)) // nil is io.EOF
	})
	return in
}

// Pipe returns the pipe that the bytes come from, so that the kernel can move
// them, or nil.
func (in *fileInput) Pipe() *os.File {
	if in.past == nil {
		return nil
	}
	return in.past.Pipe()
}

func (in *fileInput) Read(b []byte) (int, error) {
	if in.past != nil {
		if n, err := in.past.Read(b); n > 0 || err == nil {
			return n, nil
		}
		in.past = nil
		in.spent()
	}
	return in.rest.Read(b)
}

// close gives up what has not been read.
func (in *fileInput) close() {
	in.spent()
	_ = in.rest.CloseWithError(errAbandoned)
}
