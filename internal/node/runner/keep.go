package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"berth/jobs"
	"berth/overlay"
)

// endsIn is what the rest of an attempt's end takes, of the time that the
// scheduler leaves.
const endsIn = 3 * time.Second

// keepThrowAway keeps the throw-away layer of an attempt that ended so, when its
// task asks for that. A record of the end matters more: when the scheduler is
// about to kill, what is not copied by then is not kept.
func (r *attempt) keepThrowAway(ctx context.Context, out *outcome, state jobs.State) {
	o := r.spec.Overlay
	failed := state != jobs.StateCompleted && state != jobs.StateCancelled
	if o.Name != "" || o.Keep == "" || out.place == nil || out.place.layer == nil ||
		out.started.IsZero() || r.moved || o.Keep == jobs.KeepFailed && !failed {
		return
	}
	name, err := r.keepAs(ctx, out, state, false)
	if err != nil {
		r.note(err.Error())
		return
	}
	r.note(fmt.Sprintf("the layer is kept as overlay %s: berth overlay fork %s NAME makes one with a name of it", name, name))
}

// keepAs keeps the throw-away layer as an overlay, and returns its name.
func (r *attempt) keepAs(ctx context.Context, out *outcome, state jobs.State, goesOn bool) (string, error) {
	o := r.spec.Overlay
	id, err := overlay.LowerID(r.spec.Image)
	if err != nil {
		return "", fmt.Errorf("the layer could not be kept: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !r.jobEnd.IsZero() {
		time.AfterFunc(time.Until(r.jobEnd)-endsIn, cancel)
	}
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-r.stop.Done():
		}
		if w := r.stop.Why(); w.hurry > 0 {
			time.AfterFunc(time.Until(w.at.Add(w.hurry-endsIn)), cancel)
		}
	}()
	r.event("keeping", "the layer")
	m := overlay.Mark{Driver: o.Driver, Size: o.Size, Inodes: o.Inodes, Image: r.spec.Image, ImageID: id, ImageSum: r.spec.ImageSum,
		Kept: &overlay.Kept{Job: r.spec.ID, Attempt: r.info.ID, State: state, GoesOn: goesOn}}
	name, err := overlay.Keep(ctx, r.on, filepath.Join(r.stateDir(), "overlays"), out.place.layer, m, r.owner())
	switch {
	case err != nil && ctx.Err() != nil:
		return "", errors.New("the layer was not kept: the scheduler left no time to copy it")
	case err != nil:
		return "", fmt.Errorf("the layer could not be kept: %w", err)
	}
	return name, nil
}
