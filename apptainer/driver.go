package apptainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"berth/internal/images"
	"berth/internal/node/limits"
	"berth/jobs"
	"berth/overlay"
)

// chosen is the driver of an environment's layer, and what it stands over.
type chosen struct {
	driver string
	lower  string // what the container program or the mount is given as image
	note   string // why
	used   *Used  // the image, when that is settled
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
			return chosen{}, &jobs.Error{Kind: jobs.KindConfig,
				Msg: fmt.Sprintf("the files of environment %s were written by the overlay driver %s, and %s is asked for",
					o.spec.Name, m.Driver, asked),
				Hint: "leave the driver out, or start from the beginning: berth env rm " + o.spec.Name}
		}
		c, err := o.fixed(ctx, m.Driver, img, dir)
		if r := (*refused)(nil); errors.As(err, &r) && r.cut {
			return chosen{}, err
		}
		if err != nil {
			hint := "open it where that driver works"
			if r := (*refused)(nil); errors.As(err, &r) && r.unpack && r.err.Hint != "" && r.err.Hint != leaveOut {
				hint = r.err.Hint
			}
			return chosen{}, &jobs.Error{Kind: jobs.KindConfig,
				Msg: fmt.Sprintf("the files of environment %s were written by the overlay driver %s", o.spec.Name, m.Driver), Err: err,
				Hint: hint + ", or start from the beginning: berth env rm " + o.spec.Name}
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
		// Also where the image is unpacked already: the same environment may be
		// opened on another node the next time.
		if why := tooSmall(); d == jobs.DriverKernel && !img.dir && why != "" {
			not[i] = why
			continue
		}
		o.ways = true
		c, err := o.fixed(ctx, d, img, dir)
		o.ways = false
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

// refused says why a driver is not available here.
type refused struct {
	why    string
	unpack bool // the image could not be unpacked
	cut    bool // it is not known: trying it did not come to its end
	err    jobs.Error
}

func (r *refused) Error() string { return r.err.Error() }
func (r *refused) Unwrap() error { return &r.err }

func refuse(driver, why, hint string) *refused {
	return &refused{why: why, err: jobs.Error{Kind: jobs.KindConfig,
		Msg:  "the overlay driver " + driver + " is not available here: " + why,
		Hint: hint}}
}

// refuse is the refusal of a driver that a probe has found not to be right here,
// or has found nothing about: then it may be right the next time.
func (f found) refuse(driver string) *refused {
	if !f.cut {
		return refuse(driver, f.Why, cmp.Or(f.Hint, leaveOut))
	}
	return &refused{why: f.Why, cut: true, err: jobs.Error{Kind: jobs.KindInfra, Blame: jobs.BlameNode,
		Msg: "the overlay driver " + driver + " could not be tried on " + images.Hostname() + ": " + f.Why, Hint: hintCut}}
}

// hintCut is what to do when a probe did not come to its end.
const hintCut = "try again: the same may work another time, or on another machine"

// tooSmall says why the job of this process cannot unpack images, or "": the
// kernel would end unsquashfs, and have the job be called out of memory for
// ever.
func tooSmall() string {
	if got, ok := limits.JobMemory(); ok && got != 0 && got < overlay.UnpackMemory {
		return fmt.Sprintf("unpacking an image takes %s of memory, and this job has %s", overlay.UnpackMemory, got)
	}
	return ""
}

// leaveOut is what can be done about a driver that was named.
const leaveOut = "leave the driver out, and one that works is chosen"

// fixed has one driver ready for a layer in dir, or says why that cannot be.
func (o *opener) fixed(ctx context.Context, driver string, img image, dir string) (chosen, error) {
	c := chosen{driver: driver, lower: img.path}
	if o.spec.Overlay.Size != 0 && driver != jobs.DriverExt3 {
		return c, refuse(driver, "only ext3 has a size", leaveOut)
	}
	switch driver {
	case jobs.DriverExt3:
		return c, nil
	case jobs.DriverFuse:
		if img.dir {
			return c, refuse(driver, "an unpacked image is not right below it", "name a SIF, or "+leaveOut)
		}
	case jobs.DriverKernel:
		if o.spec.Fakeroot && o.fakerootIDs() {
			return c, refuse(driver, "with fakeroot it has one user id only, and you have more (/etc/subuid)", leaveOut)
		}
	default:
		return c, &jobs.Error{Kind: jobs.KindConfig, Msg: "this berth has no overlay driver " + driver,
			Hint: "there are kernel, fuse and ext3; " + leaveOut}
	}
	if !o.anywhere && !overlay.TakesDirectories(dir) {
		return c, refuse(driver, filepath.Dir(dir)+" is on a network file system", leaveOut+`: ext3`)
	}
	near, lower, tiny := filepath.Dir(dir), img.path, false
	if driver == jobs.DriverKernel && !img.dir {
		if o.runs.Stage == jobs.StageNever {
			return c, refuse(driver, `it takes an unpacked image, and stage is "never"`, leaveOut)
		}
		base, err := o.unpackBase()
		if err != nil {
			r := refuse(driver, err.Error(), leaveOut)
			if unlucky(err) {
				r = found{Why: err.Error(), cut: true}.refuse(driver)
			}
			r.unpack = true
			return c, r
		}
		lower, tiny = base, true
	}
	if f := o.layerWorks(ctx, driver, near, lower, tiny); !f.OK {
		return c, f.refuse(driver)
	}
	if tiny {
		var err error
		if c.used, err = o.stage(ctx, img, driver); err != nil {
			r := refuse(driver, err.Error(), jobs.HintOf(err))
			r.unpack = true
			// Later, or on another node, it may be available.
			if k := jobs.KindOf(err); k == jobs.KindInfra || k == jobs.KindAgain {
				r.cut, r.err.Kind, r.err.Blame = true, k, jobs.BlameOf(err)
				r.err.Msg = "the overlay driver " + driver + " is not available on " + images.Hostname() + ": " + r.why
			}
			return c, r
		}
		c.lower = c.used.Path
	}
	return c, nil
}
