package keeper

import (
	"context"
	"sync"
	"time"

	"berth/internal/node/supervise"
)

// ending is why a keeper ends.
type ending struct {
	text string // what clients and the next keeper are told
	// broken says that the place inside cannot be talked to any more.
	broken bool
	// fenced says that another keeper has the environment by now: nothing in
	// its directory is touched.
	fenced bool
	// stopped says that its user has stopped it.
	stopped bool
}

// life decides when a keeper ends. All that must not be lost by an idle end
// passes through begin, under one lock with the decision.
type life struct {
	lifetime time.Duration // idle; 0 is for ever
	grace    time.Duration // for the first request of a client that was accepted

	supervise.Stop[ending]

	mu     sync.Mutex // held to set the reason, too
	busy   int
	idle   time.Time // since when, if not busy
	opened time.Time
	// waited for are clients that were accepted and have asked for nothing yet,
	// and when. A question about the state is an answered client, and no use.
	waited  map[*client]time.Time
	used    bool          // since settled was asked
	changed chan struct{} // of capacity 1
}

func newLife(lifetime, grace time.Duration) *life {
	return &life{lifetime: lifetime, grace: grace, idle: time.Now(), waited: map[*client]time.Time{}, changed: make(chan struct{}, 1)}
}

// begin counts something that runs; false is that the keeper ends and nothing
// may begin. end is its counterpart.
func (l *life) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Why() != nil {
		return false
	}
	l.busy++
	l.used = true
	return true
}

func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy--; l.busy == 0 {
		l.idle = time.Now()
	}
	l.poke()
}

// open begins the time that counts: whoever has opened the environment has yet
// to connect.
func (l *life) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = time.Now()
	l.opened = l.idle
	l.used = true
}

// accept notes a client that may be about to ask for something; answered is its
// counterpart.
func (l *life) accept(c *client) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Why() != nil {
		return false
	}
	l.waited[c] = time.Now()
	return true
}

// answered notes that a client has asked, or has left. What it has begun counts by
// itself.
func (l *life) answered(c *client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, is := l.waited[c]; is {
		delete(l.waited, c)
		l.poke()
	}
}

// poke makes run look again. The caller holds the lock.
func (l *life) poke() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// stop ends the keeper; the first reason counts.
func (l *life) stop(why ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Set(why)
}

// run ends the keeper when it has been idle for its lifetime.
func (l *life) run(ctx context.Context) {
	if l.lifetime <= 0 {
		return
	}
	for {
		left := l.look()
		if left <= 0 {
			return
		}
		t := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-l.Done():
		case <-l.changed:
		case <-t.C:
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// look ends the keeper if it is time, and else returns for how long it is not.
func (l *life) look() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Why() != nil {
		return 0
	}
	if l.busy > 0 {
		return l.lifetime
	}
	left := max(time.Until(l.idle.Add(l.lifetime)), time.Until(l.opened.Add(l.grace)))
	for _, at := range l.waited {
		left = max(left, time.Until(at.Add(l.grace)))
	}
	if left <= 0 {
		l.Set(ending{text: "it had been idle for " + l.lifetime.String()})
	}
	return left
}

// settled tells once after it was busy that it is so no more.
func (l *life) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy > 0 || !l.used {
		return false
	}
	l.used = false
	return true
}

// idleFor is how long nothing has run.
func (l *life) idleFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy > 0 {
		return 0
	}
	return time.Since(l.idle)
}
