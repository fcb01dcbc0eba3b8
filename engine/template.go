package engine

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/keys"
	"berth/internal/images"
	"berth/jobs"
	"berth/overlay"
	"berth/templates"
)

// TemplateOptions say how the image of a template is obtained.
type TemplateOptions struct {
	// Known queries no registry and builds nothing: a missing image is an error of
	// the kind not found.
	Known bool
	// Fresh looks the base up in its registry and rebuilds the image, even if it is
	// in the cache.
	Fresh bool
}

// TemplateImage returns the reference of the image of a template: its base and
// its bootstrap script make the name, and a job builds it when the cache has
// none. What it begins with is what the cache has of it, and is fetched when it
// has nothing. Of the task, resources and options of the scheduler count for
// the job. A template without a script is its base.
func (e *Engine) TemplateImage(ctx context.Context, w *templates.Workspace, t jobs.Task, c Choice, o TemplateOptions) (string, error) {
	base, id, err := e.templateBase(ctx, w, o)
	if err != nil || w.Bootstrap == "" {
		return w.Image, err
	}
	ref := images.TemplateRef(w.Name, "1", id, w.Bootstrap)
	if o.Fresh {
		err = e.images.Forget(ref)
	} else if _, err = e.images.Known(ref); err == nil || o.Known {
		return ref, err
	}
	if err != nil && jobs.KindOf(err) != jobs.KindNotFound {
		return "", err
	}
	t.Name = "template " + w.Name
	if t.Login != nil { // it is sent there, like images of registries
		t.Place = jobs.Place{Scheduler: jobs.SchedulerLocal, Resources: t.Resources, Network: t.Network,
			Profile: jobs.Profile{Name: t.Profile.Name, Network: t.Profile.Network}}
	}
	return ref, e.build(ctx, Build{Ref: ref, Definition: w.Definition(base)}, t, c)
}

// templateBase returns the SIF that a template begins with, and what tells it
// from others.
func (e *Engine) templateBase(ctx context.Context, w *templates.Workspace, o TemplateOptions) (path, id string, err error) {
	if filepath.IsAbs(w.Image) {
		id, err := overlay.ImageID(w.Image)
		if err != nil {
			err = &jobs.Error{Kind: jobs.KindConfig, Msg: "the template " + w.Name + " begins with " + w.Image, Err: err,
				Hint: "name a SIF, or a reference: berth template show " + w.Name}
		}
		return w.Image, id, err
	}
	ref, err := images.Settle(w.Image)
	if err != nil {
		return "", "", err
	}
	var img images.Image
	if !o.Fresh {
		img, err = e.images.Known(ref)
	}
	if o.Fresh || jobs.KindOf(err) == jobs.KindNotFound && !o.Known {
		img, err = e.images.Get(ctx, ref)
	}
	// The same content, fetched again, is another file.
	return img.Path, cmp.Or(img.Digest, img.Sum), err
}

// template reads a template.
func (e *Engine) template(name string) (*templates.Workspace, error) {
	return templates.FindWorkspace(e.Templates, name)
}

// TaskTemplate puts the limits of the template that a task names into it, where
// the task says nothing, and the template's variables where the caller has them;
// dir has the user's own templates.
func TaskTemplate(dir string, t *jobs.Task) error {
	if t.Template == "" {
		return nil
	}
	w, err := templates.FindWorkspace(dir, t.Template)
	if err != nil {
		return err
	}
	r := &t.Resources
	put(&r.CPUs, w.Resources.CPUs)
	put(&r.Memory, w.Resources.Memory)
	put(&r.Time, w.Resources.Time)
	if t.Overlay.Name == "" {
		put(&r.Disk, w.Resources.Disk)
	}
	for _, name := range w.Env {
		given := slices.ContainsFunc(t.Env, func(kv string) bool { n, _, _ := strings.Cut(kv, "="); return n == name })
		if _, set := os.LookupEnv(name); set && !given {
			t.Env = append(slices.Clone(t.Env), name)
		}
	}
	return nil
}

// settleTemplate returns the image of a task's template.
func (e *Engine) settleTemplate(ctx context.Context, s *jobs.Spec, t jobs.Task, c Choice, dry bool) (string, error) {
	w, err := e.template(t.Template)
	if err != nil {
		return "", err
	}
	if e.images == nil {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no cache of images for the template " + w.Name}
	}
	t.Resources = jobs.Resources{} // which are the task's own: to build takes other ones
	ref, err := e.TemplateImage(ctx, w, t, c, TemplateOptions{Known: dry})
	if dry && jobs.KindOf(err) == jobs.KindNotFound {
		s.Notes = append(s.Notes, "the image of the template "+w.Name+" is not built yet: "+
			"a submission builds it, and its path has its SHA-256 in place of the zeros")
		s.ImageRef, s.ImageSum = ref, strings.Repeat("0", 64)
		return e.images.Path(s.ImageSum), nil
	}
	return ref, err
}

// envTemplate fills the options of a new environment that are not set from its
// template.
func (e *Engine) envTemplate(o jobs.EnvOptions) (jobs.EnvOptions, error) {
	if o.Template == "" {
		return o, nil
	}
	if o.Login != nil {
		return o, &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "a template is an image in the cache of this machine, and the environment's node has that of " + o.Login.Host,
			Hint: "use it there: ssh " + o.Login.Host + " berth exec --template " + o.Template}
	}
	w, err := e.template(o.Template)
	if err != nil {
		return o, err
	}
	put(&o.Resources.CPUs, w.Resources.CPUs)
	put(&o.Resources.Memory, w.Resources.Memory)
	put(&o.Resources.Disk, w.Resources.Disk)
	put(&o.Resources.Time, w.Resources.Time)
	for _, name := range w.Env {
		if !slices.Contains(o.Forward, name) {
			o.Forward = append(slices.Clone(o.Forward), name)
		}
	}
	return o, nil
}

// envImage has the image of a new environment's template.
func (e *Engine) envImage(ctx context.Context, o jobs.EnvOptions) (string, error) {
	w, err := e.template(o.Template)
	if err != nil {
		return "", err
	}
	t := jobs.Task{Place: jobs.Place{Network: o.Network, Scheduler: o.Scheduler, Profile: o.Profile, Target: o.Target, Slurm: o.Slurm}}
	t.Slurm.Extra = nil // they speak of an allocation
	return e.TemplateImage(ctx, w, t, Choice{Offline: o.Offline}, TemplateOptions{})
}

// sameTemplate refuses an environment that was made from another template than
// the one that is named, or from another state of it.
func (e *Engine) sameTemplate(ctx context.Context, s *jobs.EnvSpec, name string) error {
	if name == "" {
		return nil
	}
	w, err := e.template(name)
	if err != nil {
		return err
	}
	var ref string
	if e.images != nil {
		ref, err = e.TemplateImage(ctx, w, jobs.Task{}, Choice{}, TemplateOptions{Known: true})
	}
	if err != nil && jobs.KindOf(err) != jobs.KindNotFound {
		return err
	}
	was, key, _ := strings.Cut(strings.TrimPrefix(s.Image, "template:"), "@")
	switch {
	case ref != "" && keys.ImageName(s.Image) == keys.ImageName(ref):
		return nil
	case was != name || w.Bootstrap == "":
		return differs(s, "another image: "+none(s.Image)+", not that of the template "+name)
	case ref != "":
		return differs(s, "another state of the template "+name+": "+key+", and it has changed since, or what it begins with")
	}
	return nil
}
