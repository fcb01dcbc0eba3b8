package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/claims"
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
		if p := w.Sweep.PausedFor(w.me); p != nil {
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
	case t.batch.first && w.Sweep.Spec.Canary:
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

// first waits until the canary, or the pilot, has ended, or runs what is left of it. Its
// records have generation 0, and the holder of a batch takes them over as those of a former
// holder.
func (w *worker) first(ctx context.Context) error {
	w.firsts = claims.New(w.Sweep.FirstClaims(), w.me, w.gone)
	numbers := sweep.Round{Runs: w.Sweep.First()}
	waited := false
	for pause := fastest; w.hungry(ctx); pause = w.slower(pause) {
		h, open, err := w.firsts.Next(0)
		if err != nil {
			return err
		}
		if h == nil && open == 0 { // a pause was recorded before the claim was closed
			if w.Sweep.PausedFor(w.me) != nil {
				w.paused.Store(true)
			}
			return w.piloted(waited)
		}
		waited = true
		if h != nil {
			pause = fastest
			if err := w.hand(ctx, &batch{Held: h, round: 1, first: true}, numbers.Part(h.Lo, h.Hi)); err != nil {
				return err
			}
			continue
		}
		rest(ctx, pause)
	}
	return nil
}

// piloted takes the memory of the pilot's tasks for that of the others, which say none. If
// none of it succeeded while this worker was there, the sweep is paused.
func (w *worker) piloted(waited bool) error {
	if w.Sweep.Spec.Canary {
		return nil
	}
	f, err := w.Sweep.Fold()
	if err != nil {
		return err
	}
	m, err := w.Sweep.Measure(f, w.Sweep.First())
	if err != nil {
		return err
	}
	w.room.usual(w.Sweep.Spec.Request, m.Share())
	if m.OK > 0 || !waited {
		return nil
	}
	w.paused.Store(true)
	return w.Sweep.Pause(sweep.Pause{Trouble: true, Why: fmt.Sprintf("no task of the pilot succeeded, of %d", w.Sweep.First().Len())})
}
