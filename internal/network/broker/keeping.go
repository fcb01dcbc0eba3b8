package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"berth/jobs"
)

// Tries to keep the counts, before requests are refused.
const (
	keepTries = 3
	keepPause = 200 * time.Millisecond // after the first one; the next is three times as long
	keepTime  = 30 * time.Second       // that a request waits for a disk
	closeTime = 5 * time.Second        // that the end waits for it
)

var (
	errSlow = errors.New("the file system does not answer")
	errOver = errors.New("the task has ended")
)

// keeping writes the counts where whoever goes on after this process finds them. Requests
// that begin together share a write, and one write is under way at a time.
type keeping struct {
	save func(jobs.Usage) error
	used func() jobs.Usage
	tell func(error) // of the first failure after a success that a request waited for

	mu     sync.Mutex
	next   *round // that has not begun, or nil
	busy   bool
	failed bool
	closed bool
	idle   sync.Cond // of mu: busy has become false
}

// round is a write, with its tries.
type round struct {
	of     *keeping
	waited bool // by a request; else what it has is in memory, and goes with the next one
	done   chan struct{}
	err    error // once done is closed
}

func newKeeping(save func(jobs.Usage) error, used func() jobs.Usage, tell func(error)) *keeping {
	k := &keeping{save: save, used: used, tell: tell}
	k.idle.L = &k.mu
	return k
}

// begin has what is counted now written, and does not wait for it; waited is that a
// request will. It returns nil where nothing is kept, and a round that has failed after
// close.
func (k *keeping) begin(waited bool) *round {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		r := &round{of: k, done: make(chan struct{}), err: errOver}
		close(r.done)
		return r
	}
	if k.next == nil {
		k.next = &round{of: k, done: make(chan struct{})}
	}
	r := k.next
	r.waited = r.waited || waited
	if !k.busy {
		k.busy = true
		go k.work()
	}
	return r
}

// wait returns when it is written, or cannot be.
func (r *round) wait(ctx context.Context) error {
	if r == nil {
		return nil
	}
	late := time.NewTimer(keepTime)
	defer late.Stop()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		r.of.slow()
		return errSlow
	}
}

// slow tells of a write that does not come back, as of one that has failed.
func (k *keeping) slow() {
	k.mu.Lock()
	first := !k.failed
	k.failed = true
	k.mu.Unlock()
	if first {
		go k.tell(errSlow)
	}
}

// work writes until nothing is due.
func (k *keeping) work() {
	for {
		k.mu.Lock()
		r := k.next
		if k.next = nil; r == nil {
			k.busy = false
			k.idle.Broadcast()
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		pause := keepPause
		for i := range keepTries {
			if i > 0 {
				time.Sleep(pause)
				pause *= 3
			}
			if r.err = k.save(k.used()); r.err == nil {
				break
			}
		}
		k.mu.Lock()
		first := r.err != nil && r.waited && !k.failed
		k.failed = r.err != nil && (k.failed || r.waited)
		k.mu.Unlock()
		if first {
			k.tell(r.err)
		}
		close(r.done)
	}
}

// close has nothing more written, and waits for what is under way.
func (k *keeping) close() {
	if k == nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.closed = true
		for k.busy {
			k.idle.Wait()
		}
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTime):
	}
}
