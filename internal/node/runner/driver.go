package runner

import (
	"context"
	"os"

	"berth/apptainer"
	"berth/internal/sys/private"
	"berth/jobs"
	"berth/overlay"
)

// ready has the image where it is run from on this node, and the overlay driver
// of the script tried there, for a layer that is to stand in dir.
func (r *attempt) ready(ctx context.Context, p *place, home, dir string) error {
	o := r.spec.Overlay
	if o.Driver == jobs.DriverFuse && !overlay.TakesDirectories(dir) {
		// The submitter looked at this too, from its machine: a file server's
		// own disk is a network file system here.
		if o.Name != "" && r.spec.Profile.Overlay == "" {
			hint := `put overlay = "ext3" into a profile and submit with --profile, or give the overlay a size: [resources] disk`
			if _, err := os.Lstat(dir); err == nil {
				hint = "have its files in an image: berth overlay convert " + o.Name + " --driver ext3"
			}
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg: "overlay " + o.Name + " would be a directory on a network file system, where changes to the image's directories fail", Hint: hint}
		}
		if o.Name == "" {
			r.note("the scratch directory " + private.BaseOf(r.scratch.Dir) + " is on a network file system, where some changes to the image's directories fail; " +
				"name a local one, or overlay = \"ext3\", in a profile")
		}
	}
	in := r.spec.Invocation()
	for i, m := range in.Mounts {
		if m.Source == jobs.PlaceholderWork {
			in.Mounts[i].Source = p.work
		}
	}
	a := apptainer.Attempt{Spec: &r.spec, Dir: r.dir, In: in, Home: home, Scratch: r.scratch.Dir, Node: r.node, Program: p.program, On: r.on,
		Progress: func(text string) { r.event("preparing", text) }}
	used, driver, err := a.Ready(ctx, dir)
	if err != nil {
		return err
	}
	p.image, r.image = used, &used.ImageUse
	r.event("image", used.String())
	if used.Failed != "" {
		r.note("the image was not staged on " + used.Node + ": " + used.Failed)
	}
	if driver != o.Driver {
		over := r.spec.Invocation()
		over.Guest, over.Overlay.Driver = jobs.PlaceholderNode, driver
		if r.instead, err = (&apptainer.Backend{}).Argv(over, []string{"guest"}); err != nil {
			return err
		}
		o.Driver, o.Why = driver, "in place of "+o.Driver+", because the image could not be unpacked"
		r.spec.Overlay = o
		r.note("overlay driver " + o.Driver + " (" + o.Why + ")")
	}
	if o.Driver == jobs.DriverKernel {
		p.kernel = func(layer string, fill func(string) []string) ([]string, error) {
			return a.OverKernel(used.Path, layer, fill)
		}
	}
	var why string
	if r.scripts, why = apptainer.Scripts(ctx, r.on, used.Path, r.scratch.Dir, in.GPU); why != "" {
		r.note(why)
	}
	text := "overlay driver " + o.Driver
	if o.Why != "" {
		text += " (" + o.Why + ")"
	}
	r.event("overlay", text)
	return nil
}
