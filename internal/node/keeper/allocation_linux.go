package keeper

import (
	"context"
	"path/filepath"
	"time"

	"berth/internal/node/batch"
	"berth/internal/sys/tally"
	"berth/jobs"
	"berth/jobs/store"
)

// allocation is what a scheduler has given, and the keeper is the batch process
// of.
type allocation struct {
	in   jobs.NodeScheduler
	id   string
	ends time.Time // zero is not known
}

// asks starts the programs of a scheduler, and counts them in the state directory that
// the environment in dir is of.
func asks(dir string, in jobs.NodeScheduler) jobs.Starter {
	return batch.Counted(on, in, tally.Log{Dir: store.AskedIn(filepath.Dir(filepath.Dir(dir)))}.Note)
}

// allocated reads it from the environment of the job, and asks the scheduler for
// what is not there ([batch.End]).
func allocated(ctx context.Context, dir string, getenv func(string) string) allocation {
	in, job := batch.Here(getenv)
	on := asks(dir, in)
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
	return batch.EndNow(ctx, asks(k.dir, k.within.in), k.within.in, k.within.id).UTC()
}
