package keeper

import (
	"encoding/json"
	"errors"
	"sync"

	"berth/internal/link/wire"
)

// maxBacklog bounds the messages that a client leaves unread. Bytes of
// channels are bounded by their credit.
const maxBacklog = 8 << 20

var errBacklog = errors.New("the client does not read")

// outQueue sends frames to one client. Put never blocks, so that the goroutine
// that reads from the guest is not held up by a client that does not read.
type outQueue struct {
	w *wire.Writer

	mu       sync.Mutex
	ready    sync.Cond
	frames   []outFrame
	messages int // bytes of messages in frames
	closed   bool
	broken   bool
}

type outFrame struct {
	typ     wire.Type
	stream  uint32
	payload []byte
}

func newOutQueue(w *wire.Writer) *outQueue {
	q := &outQueue{w: w}
	q.ready.L = &q.mu
	return q
}

// put queues a frame, whose payload becomes the queue's.
func (q *outQueue) put(typ wire.Type, stream uint32, payload []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.broken {
		return nil
	}
	if typ < wire.Stdin {
		if q.messages += len(payload) + 64; q.messages > maxBacklog {
			return errBacklog
		}
	}
	q.frames = append(q.frames, outFrame{typ, stream, payload})
	q.ready.Signal()
	return nil
}

// message queues a message.
func (q *outQueue) message(typ wire.Type, stream uint32, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return q.put(typ, stream, b)
}

// close lets run return when everything is out.
func (q *outQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Signal()
}

// run sends what is queued, until close or until the client is gone.
func (q *outQueue) run() {
	var batch []outFrame
	for {
		q.mu.Lock()
		for len(q.frames) == 0 && !q.closed {
			q.ready.Wait()
		}
		if len(q.frames) == 0 {
			q.mu.Unlock()
			return
		}
		batch, q.frames, q.messages = q.frames, batch[:0], 0
		q.mu.Unlock()
		q.w.Hold()
		for i, f := range batch {
			_ = q.w.Forward(f.typ, f.stream, f.payload) // Release tells it, too
			batch[i] = outFrame{}
		}
		if q.w.Release() != nil {
			q.mu.Lock()
			q.broken, q.frames = true, nil
			q.mu.Unlock()
			return
		}
	}
}
