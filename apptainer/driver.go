package apptainer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"berth/jobs"
	"berth/overlay"
)

// chosen is the driver of an environment's layer, and what it stands over.
type chosen struct {
	driver string
	lower  string // what the container program or the mount is given as image
	note   string // why
}

// choose settles the driver: what the layer that stands in dir was written by,
// else what was asked for, else the first that is right here and is had: the
// kernel's, which starts fastest and has no helper process that could die;
// fuse, which needs no unpacked image; an ext3 image, which is right anywhere.
func (o *opener) choose(ctx context.Context, img image, dir string) (chosen, error) {
	asked := o.spec.Overlay.Driver
	if m, err := overlay.ReadMark(dir); err != nil {
		return chosen{}, err
	} else if m != nil {
		if asked != "" && asked != m.Driver {
			return chosen{}, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the files of environment %s were written by the overlay driver %s, and %s is asked for", o.spec.Name, m.Driver, asked),
				Hint: "leave the driver out, or begin anew: berth env rm " + o.spec.Name}
		}
		c, err := o.fixed(ctx, m.Driver, img, dir)
		if err != nil {
			return chosen{}, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the files of environment %s were written by the overlay driver %s", o.spec.Name, m.Driver), Err: err,
				Hint: "open it where that driver works, or begin anew: berth env rm " + o.spec.Name}
		}
		c.note = "overlay driver " + m.Driver
		return c, nil
	}
	if asked != "" {
		return o.fixed(ctx, asked, img, dir)
	}
	if o.spec.Overlay.Size != 0 {
		return o.withNote(ctx, jobs.DriverExt3, img, dir, "a size is asked for")
	}
	var not [2]string
	for i, d := range []string{jobs.DriverKernel, jobs.DriverFuse} {
		c, err := o.fixed(ctx, d, img, dir)
		if err == nil {
			c.note = "overlay driver " + d
			if i > 0 {
				c.note += " (" + jobs.DriverKernel + ": " + not[0] + ")"
			}
			return c, nil
		}
		if ctx.Err() != nil {
			return chosen{}, err
		}
		not[i] = reasonOf(err)
	}
	why := jobs.DriverKernel + ": " + not[0]
	if not[1] != not[0] {
		why += "; " + jobs.DriverFuse + ": " + not[1]
	}
	return o.withNote(ctx, jobs.DriverExt3, img, dir, why)
}

func (o *opener) withNote(ctx context.Context, driver string, img image, dir, why string) (chosen, error) {
	c, err := o.fixed(ctx, driver, img, dir)
	c.note = "overlay driver " + driver + " (" + why + ")"
	return c, err
}

// reasonOf is the reason of a refusal of fixed, without its first words.
func reasonOf(err error) string {
	var r *refused
	if errors.As(err, &r) {
		return r.why
	}
	return err.Error()
}

// refused says why a driver cannot be had here.
type refused struct {
	why string
	err jobs.Error
}

func (r *refused) Error() string { return r.err.Error() }
func (r *refused) Unwrap() error { return &r.err }

func refuse(driver, why, hint string) error {
	return &refused{why: why, err: jobs.Error{Kind: jobs.KindConfig, Msg: "the overlay driver " + driver + " cannot be had here: " + why, Hint: hint}}
}

// fixed has one driver ready for a layer in dir, or says why that cannot be.
func (o *opener) fixed(ctx context.Context, driver string, img image, dir string) (chosen, error) {
	const leave = "leave the driver out, and one that works is chosen"
	c := chosen{driver: driver, lower: img.path}
	if o.spec.Overlay.Size != 0 && driver != jobs.DriverExt3 {
		return c, refuse(driver, "only ext3 has a size", leave)
	}
	switch driver {
	case jobs.DriverExt3:
		return c, nil
	case jobs.DriverFuse:
		if img.dir {
			return c, refuse(driver, "an unpacked image is not right below it", "name a SIF, or "+leave)
		}
	case jobs.DriverKernel:
		if o.spec.Fakeroot && o.fakerootIDs() {
			return c, refuse(driver, "with fakeroot it has one user id only, and you have more (/etc/subuid)", leave)
		}
	default:
		return c, &jobs.Error{Kind: jobs.KindConfig, Msg: "this berth has no overlay driver " + driver, Hint: "there are kernel, fuse and ext3; " + leave}
	}
	if !overlay.TakesDirectories(dir) {
		return c, refuse(driver, filepath.Dir(dir)+" is on a network file system", leave+`: ext3`)
	}
	near, lower, tiny := filepath.Dir(dir), img.path, false
	if driver == jobs.DriverKernel && !img.dir {
		base, err := o.unpackBase()
		if err != nil {
			return c, refuse(driver, err.Error(), leave)
		}
		lower, tiny = base, true
	}
	if f := o.layerWorks(ctx, driver, near, lower, tiny); !f.OK {
		return c, refuse(driver, f.Why, leave)
	}
	if tiny {
		root, err := o.unpack(ctx, img)
		if err != nil {
			return c, refuse(driver, err.Error(), jobs.HintOf(err))
		}
		c.lower = root
	}
	return c, nil
}
