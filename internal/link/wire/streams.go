package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// ErrMany is a stream that is one too many.
var ErrMany = errors.New("too much is under way")

// Streams are the streams of one conversation that are under way. One side of it
// numbers them, and never uses a number twice. The zero value is usable. It is safe
// for concurrent use.
type Streams[S any] struct {
	Most  int    // at a time; 0 is no bound
	First uint32 // the number before that of the first one of this side's

	mu   sync.Mutex
	all  map[uint32]S
	last uint32 // the highest number used
	why  error  // why no stream is begun any more
}

// Open begins a stream of this side's, under the next number.
func (t *Streams[S]) Open(make func(n uint32) S) (s S, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != nil {
		return s, t.why
	}
	if t.full() {
		return s, ErrMany
	}
	t.last = max(t.last, t.First) + 1
	s = make(t.last)
	t.put(t.last, s)
	return s, nil
}

// Next takes the number of a stream that the other side begins; [Streams.Put] follows.
// ErrMany is that this one is not to begin; any other error ends the conversation.
func (t *Streams[S]) Next(n uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n <= t.last {
		return fmt.Errorf("stream %d was used before", n)
	}
	t.last = n
	if t.full() {
		return ErrMany
	}
	return nil
}

// Put has a stream of the other side's under way.
func (t *Streams[S]) Put(n uint32, s S) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(n, s)
}

// Remove forgets a stream from which nothing more is expected.
func (t *Streams[S]) Remove(n uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, n)
}

// All returns those under way.
func (t *Streams[S]) All() []S {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.all))
}

// Last returns the highest number used.
func (t *Streams[S]) Last() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Refuse makes Open fail from now on; what is under way goes on.
func (t *Streams[S]) Refuse(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == nil {
		t.why = why
	}
}

// Close is Refuse, and returns what was under way, which no frame reaches any more.
func (t *Streams[S]) Close(why error) []S {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.why = why
	all := slices.Collect(maps.Values(t.all))
	t.all = nil
	return all
}

// Route has its stream take a frame, outside of the lock. That of a stream that has
// just ended, or that only a newer side knows, is skipped.
func (t *Streams[S]) Route(f Frame, take func(s S, f Frame) error) error {
	s, ok := t.Of(f.Stream)
	if !ok {
		return nil
	}
	return take(s, f)
}

// Of is the stream with a number, if it is under way.
func (t *Streams[S]) Of(n uint32) (s S, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok = t.all[n]
	return s, ok
}

func (t *Streams[S]) full() bool { return t.Most > 0 && len(t.all) >= t.Most }

func (t *Streams[S]) put(n uint32, s S) {
	if t.all == nil {
		t.all = map[uint32]S{}
	}
	t.all[n] = s
}
