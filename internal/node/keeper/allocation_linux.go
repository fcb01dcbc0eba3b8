package keeper

import (
	"context"
	"time"

	"berth/internal/node/batch"
	"berth/jobs"
)

// allocation is what a scheduler has given, and the keeper is the batch process
// of.
type allocation struct {
	in   jobs.NodeScheduler
	id   string
	ends time.Time // zero is not known
}

// allocated reads it from the environment of the job, and asks the scheduler for
// what is not there ([batch.End]).
func allocated(ctx context.Context, on jobs.Starter, getenv func(string) string) allocation {
	in, job := batch.Here(getenv)
	a := allocation{in: in, id: job.ID}
	if end := batch.End(ctx, on, in, job); !end.IsZero() {
		a.ends = end.UTC()
	}
	return a
}

// Before its time is up, a keeper ends in order: what it has mounted is
// unmounted, and its lease is given back. A scheduler leaves less time for that
// (Slurm: KillWait, between TERM and KILL).
const (
	endMargin    = 30 * time.Second
	endMarginOf  = 10 // and no more than this part of the time that is left at the start
	endMarginMin = 2 * time.Second
)

// untilEnds ends the keeper shortly before the time of its allocation is up. That
// may have been moved since it began: by the site, or because the allocation was
// suspended for a while: now asks, and takes no longer than it is told.
func (k *keeper) untilEnds(ctx context.Context, now func(context.Context, time.Duration) time.Time) {
	for ends := k.within.ends; !ends.IsZero(); {
		left := time.Until(ends)
		margin := min(endMargin, max(endMarginMin, left/endMarginOf))
		t := time.NewTimer(left - margin)
		select {
		case <-ctx.Done():
		case <-k.life.Done():
		case <-t.C:
		}
		t.Stop()
		if ctx.Err() != nil || k.life.Why() != nil {
			return
		}
		moved := now(ctx, margin/2)
		if moved.Sub(ends) < endMargin {
			k.life.stop(ending{text: "the time of its allocation (" + k.within.id + ") was up"})
			return
		}
		ends = moved
		k.log.Info("the end of the allocation was moved", "to", ends)
		k.saving.Lock()
		k.info.Ends = ends
		k.saveInfo()
		k.saving.Unlock()
	}
}

// endNow asks the scheduler when the time of the allocation is up.
func (k *keeper) endNow(ctx context.Context, within time.Duration) time.Time {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return batch.EndNow(ctx, on, k.within.in, k.within.id).UTC()
}
