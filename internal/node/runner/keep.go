package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// endsIn is what the rest of an attempt's end takes, of the time that the
// scheduler leaves.
const endsIn = 3 * time.Second

// keepThrowAway keeps the throw-away layer of an attempt that ended so, or where its
// backend has no layers the place itself, when its task asks for that. A record of the
// end matters more: when the scheduler is about to kill, what is not copied by then is
// not kept. Nil is that nothing is.
func (r *attempt) keepThrowAway(ctx context.Context, out *outcome, state jobs.State) *jobs.KeptPlace {
	o := r.spec.Overlay
	failed := state != jobs.StateCompleted && state != jobs.StateCancelled
	if o.Name != "" || o.Keep == "" || out.place == nil || out.started.IsZero() || r.moved || o.Keep == jobs.KeepFailed && !failed {
		return nil
	}
	var k jobs.KeptPlace
	var err error
	switch {
	case out.place.layer != nil:
		k.Overlay, err = r.keepAs(ctx, out, state, false)
	case r.ranked():
		return nil // refused before, where a task has a place of its own to keep
	default:
		k.Environment, err = r.keepPlace(ctx)
	}
	if err != nil {
		r.note(err.Error())
		return nil
	}
	r.note(k.String())
	return &k
}

// keepPlace keeps the place as an environment, and returns its name.
func (r *attempt) keepPlace(ctx context.Context) (string, error) {
	ctx, cancel := r.keepTime(ctx)
	defer cancel()
	r.event("keeping", "the place")
	st, err := store.At(r.stateDir())
	if err != nil {
		return "", fmt.Errorf("the place could not be kept: %w", err)
	}
	s := r.spec.KeptEnvironment(r.info, r.stateDir(), time.Now().UTC(), overlay.KeptFor)
	name := "kept-" + jobs.Short(r.spec.ID)
	err = st.KeepEnv(s, []string{name, name + "-" + jobs.Short(r.info.ID)}, func(dir string) error {
		for _, name := range r.opening.Files {
			if err := r.moveOut(ctx, filepath.Join(r.scratch.Dir, name), filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		if r.opening.Keep == nil {
			return ctx.Err()
		}
		return r.opening.Keep(ctx, s)
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return "", errors.New("the place was not kept: the scheduler left no time to copy it")
	case err != nil:
		return "", fmt.Errorf("the place could not be kept: %w", err)
	}
	return s.Name, nil
}

// moveOut moves a directory that the task has written, also to another file system.
// Directories there may not be readable by their own user.
func (r *attempt) moveOut(ctx context.Context, from, to string) error {
	if os.Rename(from, to) == nil {
		return nil
	}
	can, _, _ := run.OwnFiles(ctx)
	_, err := run.Output(ctx, r.on, jobs.Cmd{Argv: []string{"cp", "-a", "--reflink=auto", "--", from, to}, OwnFiles: can})
	return err
}

// keepTime is the time that there is to keep something: what the scheduler leaves.
func (r *attempt) keepTime(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
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
	return ctx, cancel
}

// keepAs keeps the throw-away layer as an overlay, and returns its name.
func (r *attempt) keepAs(ctx context.Context, out *outcome, state jobs.State, goesOn bool) (string, error) {
	o := r.spec.Overlay
	id, err := overlay.LowerID(r.spec.Image)
	if err != nil {
		return "", fmt.Errorf("the layer could not be kept: %w", err)
	}
	ctx, cancel := r.keepTime(ctx)
	defer cancel()
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
