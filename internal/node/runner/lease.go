package runner

import (
	"context"
	"time"

	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// owner is what the attempt says of itself in a lease.
func (r *attempt) owner() overlay.Owner {
	return overlay.Owner{Version: 1, Attempt: r.info.ID, Job: r.spec.ID, SlurmJob: r.claim.NativeID, Restart: r.claim.Restart, Dir: r.dir,
		Host: r.claim.Host, BootID: r.claim.BootID, PID: r.claim.PID, Start: r.claim.Start, Time: time.Now().UTC(), Beat: r.times.Beat}
}

// openNamed opens the named overlay in dir. While another owner holds its lease, it
// waits as long as the task says. A holder that may be gone is watched until that
// is certain, even if this takes longer.
func (r *attempt) openNamed(ctx context.Context, dir string, spec jobs.OverlaySpec) (*overlay.Layer, error) {
	deadline := time.Now().Add(spec.Wait)
	gone := r.ownerGone(ctx, dir)
	var told overlay.Owner
	tell := func(o overlay.Owner) bool {
		if o != told {
			told = o
			r.event(store.EventWaiting, "for "+overlay.Held(spec.Name, o))
		}
		return gone(o)
	}
	for {
		l, err := overlay.Persistent(ctx, r.on, dir, spec, overlay.Image{Path: r.spec.Image, Sum: r.spec.ImageSum}, r.owner(), tell)
		if err == nil && told != (overlay.Owner{}) {
			r.event("leased", "overlay "+spec.Name)
		}
		if jobs.KindOf(err) != jobs.KindAgain || !time.Now().Before(deadline) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(min(r.times.Beat/10, time.Second)):
		}
	}
}

// ownerGone tells whether the holder of the overlay in dir is provably gone,
// see [overlay.Watch]. The container of a runner that was killed lives on until
// its guest has seen the stream close and has ended everything, so time must have
// passed since the last beat even when the process is no more.
func (r *attempt) ownerGone(ctx context.Context, dir string) func(overlay.Owner) bool {
	me := lease.Process{Host: r.claim.Host, BootID: r.claim.BootID, PID: r.claim.PID}
	return overlay.Watch(ctx, dir, me, lease.Patience{Look: r.times.Beat / 10, Dead: r.times.Dead, Silent: r.times.Silent})
}
