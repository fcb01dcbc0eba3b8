package apptainer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"berth/internal/images"
	"berth/jobs"
	"berth/overlay"
)

// An Attempt is the execution of a job on its node, whose script says with
// which driver its layer is written.
type Attempt struct {
	Spec    *jobs.Spec
	Dir     string          // of the attempt
	In      jobs.Invocation // as in the script
	Home    string          // the state directory
	Scratch string          // a directory of its own on the node's disk
	Node    string          // path of berth-node
	Program string          // of the container
	On      jobs.Starter
	// Progress is told what takes a while.
	Progress func(string)
}

// Ready has the image on this node where it is best run from, and the driver of
// the job's layers tried there, for one whose files are to be in dir, unless that
// was done since the node was booted. It returns what is below the layer, for the
// driver kernel the image unpacked, and the driver: that of the script, or fuse
// for a layer that is thrown away where the image could not be unpacked.
func (a Attempt) Ready(ctx context.Context, dir string) (used *Used, driver string, err error) {
	o := &opener{b: &Backend{On: a.On}, program: a.Program, anywhere: true,
		spec: &jobs.EnvSpec{Home: a.Home, User: a.Spec.User, Place: jobs.Place{Scratch: a.Spec.Profile.Scratch}},
		runs: Runs{Stage: a.Spec.Stage, Tasks: a.Spec.Resources.Tasks, Time: a.Spec.Resources.Time},
		at:   jobs.OpenPlace{Dir: a.Dir, Guest: a.Node, Scratch: a.Scratch, On: a.On, Progress: a.Progress}}
	driver = a.Spec.Overlay.Driver
	id, err := overlay.LowerID(a.Spec.Image)
	if err != nil {
		return nil, "", err
	}
	img := image{given: a.Spec.Image, path: a.Spec.Image, id: id, sum: a.Spec.ImageSum, dir: a.Spec.ImageDir != ""}
	failed := ""
	if driver == jobs.DriverKernel && !img.dir {
		c, err := o.fixed(ctx, driver, img, dir)
		var r *refused
		if err == nil || ctx.Err() != nil || a.Spec.Overlay.Name != "" || !errors.As(err, &r) || !r.unpack {
			return c.used, driver, a.explain(ctx, err)
		}
		driver, failed = jobs.DriverFuse, r.why
	}
	if used, err = o.stage(ctx, img, driver); err != nil {
		return nil, "", err
	}
	if failed != "" {
		used.Failed = failed
	}
	img.path = used.Path
	if driver == jobs.DriverExt3 { // without it there is no other
		if f := o.layerWorks(ctx, driver, filepath.Dir(dir), img.path, false); !f.OK {
			err = f.refuse(driver)
		}
	} else {
		_, err = o.fixed(ctx, driver, img, dir)
	}
	if err != nil {
		_ = used.Close()
		return nil, "", a.explain(ctx, err)
	}
	return used, driver, nil
}

// explain says what to do when a layer is not available here.
func (a Attempt) explain(ctx context.Context, err error) error {
	if r := (*refused)(nil); err == nil || ctx.Err() != nil || errors.As(err, &r) && r.cut {
		return err
	}
	hint := jobs.HintOf(err)
	o := a.Spec.Overlay
	switch {
	case hint != "" && hint != leaveOut: // it knows better
	case o.Name != "" && o.Driver != jobs.DriverExt3:
		hint = fmt.Sprintf("send it to nodes where that works, or change its driver: berth overlay convert %s --driver ext3", o.Name)
	case o.Name != "":
		hint = "look at the node: berth doctor --on-node"
	default:
		hint = "look at the node, and have the driver that works there in the profile: berth doctor --on-node --write-profile NAME"
	}
	if why := reasonOf(err); why != err.Error() {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  fmt.Sprintf("the overlay driver %s is not available on %s: %s", o.Driver, images.Hostname(), why),
			Hint: hint}
	}
	return err
}

// OverKernel puts the line of a container, filled with merged as its image,
// after the one that mounts a layer of the driver kernel there. It is to be
// started with [jobs.Cmd.OwnMounts].
func (a Attempt) OverKernel(lower, layer string, fill func(merged string) []string) ([]string, error) {
	merged := filepath.Join(a.Scratch, dirMerged)
	return overKernel(a.In, lower, layer, merged, a.Node, fill(merged))
}
