package overlay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// Owner is who holds an overlay's lease, as the owner described itself.
type Owner = lease.Owner

// Lease is the right to write one overlay.
type Lease = lease.Lease

// Acquire takes the lease of the overlay in dir, see [lease.Acquire]. A lease
// that stands is an error of kind KindAgain that names its holder.
func Acquire(dir string, me Owner, gone func(Owner) bool) (*Lease, error) {
	name := nameOf(dir)
	l, err := lease.Acquire(dir, me, gone)
	var held *lease.HeldError
	switch {
	case errors.As(err, &held):
		o := held.Owner
		hint := "--overlay-wait TIME waits for that job (berth ps); or give this task an overlay of its own"
		switch {
		case me.Verb != "":
			hint = "--wait waits until that has ended, --wait=10m so long at most"
		case o.Environment != "":
			hint = "stop that environment (berth env ls), or use an overlay of its own"
		case o.Verb != "":
			hint = "--wait, of a job --overlay-wait TIME, waits until that has ended"
		}
		return nil, &jobs.Error{Kind: jobs.KindAgain,
			Msg:  fmt.Sprintf("overlay %s is in use by %s on %s since %s", name, by(o), o.Host, o.Time.Format(time.RFC3339)),
			Hint: hint}
	case err != nil:
		return nil, fmt.Errorf("lease overlay %s: %w", name, err)
	}
	return l, nil
}

// by is what holds a lease, in words.
func by(o Owner) string {
	switch {
	case o.Environment != "":
		return "environment " + o.Environment
	case o.Verb != "":
		return fmt.Sprintf("berth overlay %s (process %d)", o.Verb, o.PID)
	}
	who := "attempt " + jobs.Short(o.Attempt)
	if o.Job != "" {
		who = "job " + jobs.Short(o.Job)
	}
	if o.SlurmJob != "" {
		who += ", Slurm job " + o.SlurmJob
	}
	return who
}

// By is what holds an overlay's lease, in words.
func By(o Owner) string { return by(o) + " on " + o.Host }

// Held says in words who holds an overlay, for a process that waits for it.
func Held(name string, o Owner) string {
	return fmt.Sprintf("overlay %s, held by %s since %s", name, By(o), o.Time.Format(time.RFC3339))
}

// Watch returns what [Acquire] is to ask about the holder of the lease of dir,
// as [lease.Gone]; one that gives the lease back while it is watched does not
// count any more either. usual is for holders that do not say how often they
// beat.
func Watch(ctx context.Context, dir string, me lease.Process, usual lease.Patience) func(Owner) bool {
	return func(o Owner) bool {
		p := usual
		if o.Beat > 0 {
			p = lease.PatienceFor(o.Beat)
		}
		return lease.Gone(ctx, o, me, p, func(beats string) bool {
			if store.HasExit(beats) {
				return true
			}
			now, err := lease.Holder(dir)
			return err == nil && (now == nil || now.Dir != o.Dir || !now.Time.Equal(o.Time))
		})
	}
}
