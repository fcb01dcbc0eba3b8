package engine

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/sitefile"
	"berth/internal/images"
	"berth/internal/sys/ids"
	"berth/jobs"
)

// planEnv settles a new environment: every value chosen.
func (e *Engine) planEnv(ctx context.Context, name string, o jobs.EnvOptions) (*jobs.EnvSpec, error) {
	id, err := ids.New()
	if err != nil {
		return nil, err
	}
	scheduler, err := e.allocates(o.Scheduler)
	if err != nil {
		return nil, err
	}
	site, err := sitefile.Read()
	if err == nil {
		err = site.Here(&jobs.Place{Scheduler: scheduler})
	}
	if err != nil {
		return nil, err
	}
	asked := o
	o.Backend = wantedBackend(o)
	w := wanted{env: true, name: name, auto: o.Auto, image: o.Image, template: o.Template, user: identity().User}
	b, notes, err := e.chooseBackend(ctx, &o.Place, w)
	if err != nil {
		return nil, err
	}
	if o, err = e.envTemplate(o); err != nil {
		return nil, err
	}
	named := o.Template
	o, soft, said, err := configured(o, b.Name())
	if err == nil && named == "" { // the configuration names it, and wins over it
		o, err = e.envTemplate(o)
	}
	if err != nil {
		return nil, err
	}
	notes = append(notes, said...)
	host, _ := os.Hostname()
	s := &jobs.EnvSpec{
		Version:    jobs.EnvVersion,
		ID:         id,
		Name:       name,
		Notes:      notes,
		Persistent: !o.Destroy,
		Once:       PerTask(asked),
		Forward:    o.Forward,
		Strict:     o.Strict,
		Lifetime:   o.Lifetime,
		Project:    o.Project,
		Created:    e.Now().UTC(),
		User:       w.user,
		Host:       host,
		Home:       e.Store.Home(),
		Place:      o.Place,
	}
	s.Scheduler = scheduler
	w.image, w.template = o.Image, o.Template
	site.Bind(&s.Place)
	s.Backend = b.Name()
	if err := checkLent(s); err != nil {
		return nil, err
	}
	if said, err = settlePlace(&s.Place, b, w); err != nil {
		return nil, err
	}
	s.Notes = slices.Concat(s.Notes, said, narrowed(&s.Place))
	s.Resources = jobs.Resources{CPUs: max(0, o.Resources.CPUs), Memory: max(0, o.Resources.Memory), Disk: max(0, o.Resources.Disk)}
	if !o.Strict {
		s.Defaulted = soft
	}
	program, _ := b.(Program)
	if program != nil {
		s.External.Life = shorter(o.Resources.Time, s.DestroyAfter)
		asked.Resources.Time = 0 // its sandbox has a time of its own
	}
	switch {
	case s.Lifetime == 0:
		s.Lifetime = jobs.DefaultLifetime
	case s.Lifetime < 0:
		s.Lifetime = 0
	}
	if err := e.planHeld(ctx, s, o, asked); err != nil {
		return nil, err
	}
	if err := site.Hold(&s.Place, false); err != nil {
		return nil, err
	}
	if err := settleKeys(&s.Place, s.Forward, nil); err != nil { // they are read when it is opened
		return nil, err
	}
	if o.Template != "" {
		if o.Image, err = e.envImage(ctx, o); err != nil {
			return nil, err
		}
	}
	if err := settleUsual(s, o); err != nil {
		return nil, err
	}
	if err := e.checkBinds(&s.Place, w); err != nil {
		return nil, err
	}
	if program != nil {
		if err = program.Settle(ctx, s); err == nil && o.Keep && !s.Persistent {
			err = absent("--keep", &s.Place)
		}
		return s, err
	}
	return s, e.fetchFor(ctx, s, o.Offline)
}

// settleUsual settles what an environment has where nothing is said: limits, and an
// image. Of a program the limits are its own to hold, see [Program.Settle].
func settleUsual(s *jobs.EnvSpec, o jobs.EnvOptions) error {
	can := s.Can()
	if !can.Bare && s.Scheduler == "" && !o.Strict { // an allocation has what its site gives
		if o.Resources.CPUs == 0 {
			s.Resources.CPUs = defaultCPUs
			s.Defaulted = append(s.Defaulted, "cpus")
		}
		if o.Resources.Memory == 0 {
			s.Resources.Memory = defaultMemory
			s.Defaulted = append(s.Defaulted, "memory")
		}
	}
	if can.Daemon {
		d := valueOf(o.Docker)
		put(&d.Pids, defaultPids)
		put(&d.Shm, defaultShm)
		s.Docker = &d
	}
	s.Overlay = jobs.OverlaySpec{}
	if !can.Layers {
		return nil
	}
	s.Overlay = jobs.OverlaySpec{Driver: unlessAuto(o.Overlay.Driver), Size: s.Resources.Disk}
	if s.Image = cmp.Or(o.Image, s.Profile.Image); s.Image == "" {
		return noEnvImage(s.Name, "docker://debian:12 (or a SIF)", "terminal.singularity_image docker://debian:12")
	}
	if images.IsTagged(s.Image) {
		s.Image = "docker://" + s.Image
	}
	if strings.Contains(s.Image, "://") || images.IsReference(s.Image) || s.Login != nil {
		return nil
	}
	var err error
	if s.Image, err = filepath.Abs(s.Image); err != nil {
		return err
	}
	_, err = imageFile(s.Image)
	return err
}

// noEnvImage is that of an environment which is to be made, and which may be one that
// is there under a mistyped name.
func noEnvImage(name, image, key string) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "no image is named for the new environment " + name,
		Hint: "--image " + image + "; for all: berth config set " + key + "; berth env ls lists the environments that are there"}
}
