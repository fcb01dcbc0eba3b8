package cli

import (
	"context"

	"berth/apptainer"
	"berth/engine"
	"berth/internal/sweep"
	"berth/jobs"
	"berth/overlay"
)

// overlayBelow has the tasks of a sweep begin with the files of the overlay that is named. What
// stands below many tasks may not change as long as one of them runs, on any node, and jobs may
// write the overlay in that time: so the workers have an image of both, as it is now. For a plan
// nothing is made.
func (a *app) overlayBelow(ctx context.Context, e *engine.Engine, spec *sweep.Spec, planned *jobs.Spec, plan bool) error {
	set, st, err := a.overlays()
	if err != nil {
		return err
	}
	name := planned.Overlay.Name
	set.Wait = planned.Overlay.Wait
	if _, err := set.Get(name); err != nil {
		return err
	}
	if plan {
		return e.ThrowAway(planned)
	}
	cache, err := a.cache(st.Home())
	if err != nil {
		return err
	}
	over := overlay.Image{Path: planned.Image, Sum: planned.ImageSum}
	if over.ID, err = overlay.LowerID(over.Path); err != nil {
		return err
	}
	r, err := set.Read(ctx, name, "export")
	if jobs.KindOf(err) == jobs.KindAgain {
		return &jobs.Error{Kind: jobs.KindAgain, Msg: "read the overlay for the tasks of the sweep", Err: err,
			Hint: "--overlay-wait TIME waits until it is free; of one that has a snapshot the last one is taken: berth overlay snapshot " + name}
	}
	if err != nil {
		return err
	}
	defer r.Close()
	img, digest, err := apptainer.Merged(ctx, r, cache, name, over)
	if err != nil {
		return err
	}
	spec.Overlay = &sweep.Overlay{Name: name, Digest: digest, Image: planned.Image}
	planned.Image, planned.ImageSum, planned.ImageDir = img.Path, img.Sum, ""
	a.say("each task begins with the files of overlay %s, and what it changes is thrown away: the overlay stays as it is", spec.Overlay)
	return e.ThrowAway(planned)
}
