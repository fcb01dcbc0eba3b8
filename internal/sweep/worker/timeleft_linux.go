package worker

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"berth/internal/sweep"
	"berth/internal/sys/lease"
	"berth/jobs"
)

// about is worker.json.
type about struct {
	lease.Process
	Began time.Time `json:"began"`
	Job   string    `json:"job,omitempty"`
	Ends  time.Time `json:"ends,omitzero"`
	// Place is how its tasks are contained; what each has for itself is in [sweep.OwnFile].
	Place string `json:"tasks_in,omitempty"`
}

// placeOf names what contains the tasks of a worker; "" is nothing.
func placeOf(p *jobs.Place) string {
	if !contained(p) {
		return ""
	}
	return p.Backend + ": " + p.Containment()
}

// errTime is that the job of the worker is about to be ended.
var errTime = errors.New("the time of the worker's job is over")

// timed is the place of a worker whose job ends then, with the time of that where the sweep says
// none, as after a pilot or by a partition's own limit: it bounds longer tries of a task.
func timed(p *jobs.Place, ends, now time.Time) *jobs.Place {
	if p == nil || p.Resources.Time > 0 || !ends.After(now) {
		return p
	}
	own := *p
	own.Resources.Time = ends.Sub(now)
	return &own
}

// stopAt is when a worker that begins now ends what still runs.
func stopAt(now, ends time.Time) time.Time {
	if ends.IsZero() {
		return ends
	}
	return ends.Add(-sweep.Margin(ends.Sub(now)))
}

// end ends the worker when its time is over.
func (w *worker) end(ctx context.Context) {
	if w.stops.IsZero() {
		return
	}
	t := time.NewTimer(time.Until(w.stops))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
		w.stop(errTime)
	}
}

// late tells whether a task that begins now would likely be cut off: what is left is
// less than 1.5 times what 95 of 100 of the tasks so far took.
func (w *worker) late(now time.Time) bool {
	if w.stops.IsZero() {
		return false
	}
	left := w.stops.Sub(now)
	return left <= 0 || left < w.times.most()*3/2
}

// times are how long tasks took, in steps of an eighth of a power of 2.
type times struct {
	steps [64 * 8]atomic.Int64
	n     atomic.Int64
}

func (t *times) add(d time.Duration) {
	step := int(8 * math.Log2(float64(max(d.Milliseconds(), 1))))
	t.steps[min(step, len(t.steps)-1)].Add(1)
	t.n.Add(1)
}

// most is what 95 of 100 took at most; 0 is not known.
func (t *times) most() time.Duration {
	n := t.n.Load()
	if n == 0 {
		return 0
	}
	above := n / 20
	for i := len(t.steps) - 1; i >= 0; i-- {
		if above -= t.steps[i].Load(); above < 0 {
			return time.Duration(math.Exp2(float64(i+1)/8) * float64(time.Millisecond))
		}
	}
	return 0
}
