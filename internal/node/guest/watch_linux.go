package guest

import (
	"sync"
	"time"
)

// watch measures the time since the last ping, by the monotonic clock.
type watch struct {
	mu      sync.Mutex
	timeout time.Duration // 0 is for ever
	last    time.Time     // ping, or the beginning
	seen    time.Time     // when check was last called
	allowed bool          // the guest itself slept since the last ping, and got more time
	changed chan struct{} // the tick is another one now
}

func newWatch(timeout time.Duration, now time.Time) *watch {
	return &watch{timeout: timeout, last: now, seen: now, changed: make(chan struct{}, 1)}
}

// set changes the timeout and counts as a ping.
func (w *watch) set(timeout time.Duration, now time.Time) {
	w.mu.Lock()
	w.timeout, w.seen = timeout, now
	w.mu.Unlock()
	w.ping(now)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// ping notes that one has come.
func (w *watch) ping(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.allowed = now, false
}

// tick is how often to check.
func (w *watch) tick() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timeout == 0 {
		return time.Second
	}
	return min(max(w.timeout/20, time.Millisecond), time.Second)
}

// afterStop is how long a guest that was stopped waits for a ping at most. It is
// little, because others may have gone by the time that passed meanwhile.
const afterStop = 15 * time.Second

// check tells whether pings have stayed away for too long. When much more time
// has passed since the last check than a tick, the guest itself was stopped,
// and pings may wait in the pipe or may have been stopped as well: it waits
// a little more, once.
func (w *watch) check(now time.Time) (silent bool) {
	tick := w.tick()
	w.mu.Lock()
	defer w.mu.Unlock()
	slept := now.Sub(w.seen) > 5*tick
	w.seen = now
	if w.timeout == 0 {
		return false
	}
	if slept && !w.allowed {
		w.allowed = true
		if more := now.Add(min(w.timeout/2, afterStop) - w.timeout); w.last.Before(more) {
			w.last = more
		}
	}
	return now.Sub(w.last) >= w.timeout
}

// run returns when pings have stayed away for too long.
func (w *watch) run() {
	for {
		select {
		case <-w.changed:
		case <-time.After(w.tick()):
			if w.check(time.Now()) {
				return
			}
		}
	}
}
