package supervise

import (
	"context"
	"log/slog"
	"time"

	"berth/jobs/store"
)

// Times are the periods of supervision. They stand in a fixed ratio: a beat
// every period, a guest that leaves after twelve without a ping, an owner that
// counts as silent after eighteen. A file server that fails over may take that
// long; that the guest has left before its owner counts as silent is what keeps
// two containers from one overlay.
type Times struct {
	Beat       time.Duration // between signs of life, and between pings
	Fresh      time.Duration // a beat that took longer to write is no reason to ping
	Unanswered int           // pings in a row that a guest may leave unanswered
	GuestWait  time.Duration // the guest ends the container after so long without a ping
	Dead       time.Duration // the guest of a killed owner, whose stream is closed, has left
	Silent     time.Duration // an owner without a new beat for so long is gone
	Start      time.Duration // for the container to come up
	Unmount    time.Duration // for the container program to clean up after the end
}

// TimesOf are the periods where a sign of life is given so often.
func TimesOf(beat time.Duration) Times {
	return Times{Beat: beat, Fresh: 2 * beat, Unanswered: 4, GuestWait: 12 * beat, Dead: 3 * beat, Silent: 18 * beat,
		Start: 2 * time.Minute, Unmount: 20 * time.Second}
}

// Heartbeat is what a supervisor does every beat.
type Heartbeat struct {
	Dir    string // in which the beat is written
	Times  Times
	Log    *slog.Logger
	Stands func() bool // reports whether all that is held is still held; else it ends the supervision
	Ping   func()      // pings the guest
	Also   func()      // is called between beats
}

// Run writes the heartbeat until ctx ends, and pings the guest only while that works
// and all that is held stands: a supervisor that has lost its file system, its
// attempt or its lease must let the container end. After the file system hung there
// is no ping, because the claim may be lost by now: other processes count the timeout
// from the last heartbeat.
func (h Heartbeat) Run(ctx context.Context) {
	t := time.NewTicker(h.Times.Beat)
	defer t.Stop()
	for n := 1; ; n++ {
		began := time.Now()
		if err := store.Beat(h.Dir, n, began); err != nil {
			h.Log.Warn("the beat could not be written", "err", err)
		} else if h.Stands() {
			took := time.Since(began)
			if took <= h.Times.Fresh {
				h.Ping()
			} else if h.Log.Warn("the file system of "+h.Dir+" did not answer for a while", "took", took.Round(time.Second)); ctx.Err() == nil {
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		h.Also()
	}
}
