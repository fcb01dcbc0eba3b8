package apptainer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/images"
	"berth/internal/sys/private"
	"berth/jobs"
	"berth/overlay"
)

// attempt opens the place of a job's attempt, whose script says with which driver
// its layer is written.
func (o *opener) attempt(ctx context.Context, op *jobs.Opening) error {
	a := o.at.Attempt
	s := a.Spec
	if err := o.directories(op); err != nil {
		return err
	}
	used, driver, err := o.ready(ctx, s, a.LayerDir)
	if err != nil {
		return err
	}
	over := jobs.LayerOver{Image: &used.ImageUse, Driver: driver, Why: s.Overlay.Why}
	if driver != s.Overlay.Driver {
		over.Why = "in place of " + s.Overlay.Driver + ", because the image could not be unpacked"
	}
	var note string
	if op.Scripts, note = Scripts(ctx, o.at.On, used.Path, o.at.Scratch, s.GPUKind()); note != "" {
		op.Notes = append(op.Notes, note)
	}
	if _, err := a.Layer(ctx, over); err != nil {
		return errors.Join(err, used.Close())
	}
	if note := noCard("/", s.GPUKind()); note != "" {
		op.Notes = append(op.Notes, note)
	}
	op.Close, op.Work, op.OwnMounts = used.Close, jobs.WorkDir, driver == jobs.DriverKernel
	op.Line = func(l jobs.LineAt) (argv, notes []string, err error) {
		in := s.InvocationAt(l)
		in.Overlay.Driver = driver
		covers, notes, err := o.private(l.Scratch)
		if err != nil {
			return nil, nil, err
		}
		argv, err = o.line(in, lineOf{lower: used.Path, layer: l.Layer, scratch: l.Scratch, guest: l.Guest, covers: covers})
		return argv, notes, err
	}
	return nil
}

// directories looks whether the layer of the driver fuse can be a directory where it
// will stand.
func (o *opener) directories(op *jobs.Opening) error {
	s, dir := o.at.Attempt.Spec, o.at.Attempt.LayerDir
	if s.Overlay.Driver != jobs.DriverFuse || overlay.TakesDirectories(dir) {
		return nil
	}
	// The submitter looked at this too, from its machine: a file server's own disk is
	// a network file system here.
	name := s.Overlay.Name
	if name != "" && s.Profile.Overlay == "" {
		hint := `put overlay = "ext3" into a profile and submit with --profile, or give the overlay a size: [resources] disk`
		if _, err := os.Lstat(dir); err == nil {
			hint = "have its files in an image: berth overlay convert " + name + " --driver ext3"
		}
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: "overlay " + name + " would be a directory on a network file system, where changes to the image's directories fail", Hint: hint}
	}
	if name == "" {
		op.Notes = append(op.Notes, "the scratch directory "+private.BaseOf(o.at.Scratch)+
			" is on a network file system, where some changes to the image's directories fail; "+
			"name a local one, or overlay = \"ext3\", in a profile")
	}
	return nil
}

// submitted reads the head of the job's image: it has to be the one that was submitted.
func submitted(s *jobs.Spec) (image, error) {
	id, err := overlay.LowerID(s.Image)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return image{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "image " + s.Image + " does not exist on " + images.Hostname(),
				Hint: "put it on a file system that the compute nodes share"}
		}
		return image{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the image", Err: err, Hint: jobs.HintOf(err)}
	}
	if s.ImageDir != "" && s.ImageDir != id {
		return image{}, &jobs.Error{Kind: jobs.KindConfig, Msg: "the unpacked image " + s.Image + " is not the one that was submitted",
			Err:  errors.New("on " + images.Hostname() + " it was made at another time, or stands on a disk of its own"),
			Hint: "submit again; or keep it where the nodes see the same directory, or name a SIF"}
	}
	return image{given: s.Image, path: s.Image, id: id, sum: s.ImageSum, dir: s.ImageDir != ""}, nil
}

// ready has the image on this node where it is best run from, and the driver of
// the job's layers tried there, for one whose files are to be in dir, unless that
// was done since the node was booted. It returns what is below the layer, for the
// driver kernel the image unpacked, and the driver: that of the script, or fuse
// for a layer that is thrown away where the image could not be unpacked.
func (o *opener) ready(ctx context.Context, s *jobs.Spec, dir string) (used *Used, driver string, err error) {
	driver = s.Overlay.Driver
	img, err := submitted(s)
	if err != nil {
		return nil, "", err
	}
	failed := ""
	if driver == jobs.DriverKernel && !img.dir {
		c, err := o.fixed(ctx, driver, img, dir)
		var r *refused
		if err == nil || ctx.Err() != nil || s.Overlay.Name != "" || !errors.As(err, &r) || !r.unpack {
			return c.used, driver, explain(ctx, s, err)
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
		return nil, "", explain(ctx, s, err)
	}
	return used, driver, nil
}

// explain says what to do when a layer is not available here.
func explain(ctx context.Context, s *jobs.Spec, err error) error {
	if r := (*refused)(nil); err == nil || ctx.Err() != nil || errors.As(err, &r) && r.cut {
		return err
	}
	hint := jobs.HintOf(err)
	o := s.Overlay
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
