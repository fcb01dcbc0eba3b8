package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/claims"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/internal/sys/lease"
)

// fewestResults is how many results a worker has before their rate of errors is one.
const fewestResults = 10

// shareEvery is how often a worker looks how many others share what is allowed.
const shareEvery = 5 * time.Second

// held sees, once a second, what a person has said: that it is paused, and how many may run at once.
func (w *worker) held(now time.Time) {
	if !w.paused.Load() {
		if p := w.Sweep.Paused(); p != nil {
			w.Log("the sweep is paused: %s", p.Why)
			w.paused.Store(true)
		}
	}
	n := w.Sweep.Throttled()
	if n == 0 {
		w.allowed.Store(-1)
		return
	}
	if n == w.throttle && now.Sub(w.shared) < shareEvery {
		return
	}
	w.throttle, w.shared = n, now
	w.allowed.Store(int64(w.share(n, now)))
}

// share is this worker's part of n tasks at once.
func (w *worker) share(n int, now time.Time) int {
	all, err := w.Sweep.Workers()
	if err != nil {
		return n
	}
	me := lease.Self()
	all = slices.DeleteFunc(all, func(x uint32) bool { return x != w.me && !claims.SeemsAlive(w.Sweep.WorkerDir(x), me, w.Beat, now) })
	slices.Sort(all)
	at := slices.Index(all, w.me)
	if at < 0 {
		return n
	}
	part := n / len(all)
	if at < n%len(all) {
		part++
	}
	return part
}

// enter waits until one more task may run; false is that none may.
func (w *worker) enter(ctx context.Context) bool {
	for ctx.Err() == nil && !w.paused.Load() {
		running, allowed := w.running.Load(), w.allowed.Load()
		if allowed >= 0 && running >= allowed {
			select {
			case <-ctx.Done():
			case <-time.After(fastest):
			}
			continue
		}
		if w.running.CompareAndSwap(running, running+1) {
			return true
		}
	}
	return false
}

// judge pauses the sweep when the canary has failed, or too many tasks.
func (w *worker) judge(t *task, r journal.Record) {
	results := w.results.Add(1)
	if r.State == journal.OK {
		return
	}
	bad := w.bad.Add(1)
	pause := sweep.Pause{Trouble: true}
	switch rate := w.Sweep.Spec.StopRate; {
	case t.batch.canary:
		pause.Why = fmt.Sprintf("the canary, task %d, did not succeed: %s", t.Number, r.State)
	case rate > 0 && results >= fewestResults && float64(bad) > rate*float64(results):
		pause.Why = fmt.Sprintf("%d of the last %d tasks of worker %d did not succeed, which is more than %g", bad, results, w.me, rate)
	default:
		return
	}
	w.paused.Store(true)
	w.Log("the sweep is paused: %s", pause.Why)
	if err := w.Sweep.Pause(pause); err != nil {
		w.fail(err)
	}
}

// canary waits until the first task has ended, or runs it. Its record has generation 0,
// and the holder of its batch takes it over as that of a former holder.
func (w *worker) canary(ctx context.Context) error {
	w.canaries = claims.New(w.Sweep.Canary(), w.me, w.gone)
	for pause := fastest; ctx.Err() == nil && !w.paused.Load() && !w.late(time.Now()); pause = min(2*pause, slowest) {
		h, open, err := w.canaries.Next(0)
		if err != nil {
			return err
		}
		if h == nil && open == 0 { // the pause was recorded before the claim was closed
			if w.Sweep.Paused() != nil {
				w.paused.Store(true)
			}
			return nil
		}
		if h != nil {
			b := &batch{Held: h, round: 1, canary: true}
			b.left.Store(1)
			err := w.Sweep.Tasks(1, 1, func(t command.Task) error { return w.give(ctx, &task{Task: t, batch: b}) })
			w.ended(b)
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}
