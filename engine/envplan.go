package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/images"
	"berth/internal/sys/ids"
	"berth/jobs"
)

// planEnv settles a new environment: every value chosen.
func (e *Engine) planEnv(ctx context.Context, name string, o EnvOptions) (*jobs.EnvSpec, error) {
	id, err := ids.New()
	if err != nil {
		return nil, err
	}
	scheduler, err := e.allocates(o.Scheduler)
	if err != nil {
		return nil, err
	}
	asked := o
	o.Backend = o.wantedBackend()
	b, notes, err := e.chooseBackend(ctx, &o.Place, wanted{env: true, auto: o.Auto, image: o.Image, template: o.Template})
	if err != nil {
		return nil, err
	}
	if o, err = e.envTemplate(o); err != nil {
		return nil, err
	}
	named := o.Template
	o, soft, said, err := o.configured(b.Name())
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
		Persistent: !o.Discard,
		Forward:    o.Forward,
		Strict:     o.Strict,
		Lifetime:   o.Lifetime,
		Project:    o.Project,
		Created:    e.Now().UTC(),
		User:       identity().User,
		Host:       host,
		Home:       e.Store.Home(),
		Place:      o.Place,
	}
	s.Scheduler, s.Backend, s.Level = scheduler, b.Name(), b.Level()
	if err := refuse(&s.Place, wanted{env: true, image: o.Image, template: o.Template}); err != nil {
		return nil, err
	}
	s.Resources = jobs.Resources{CPUs: max(0, o.Resources.CPUs), Memory: max(0, o.Resources.Memory), Disk: max(0, o.Resources.Disk)}
	s.Docker, s.SSH, s.External = nil, nil, nil // as the backend takes them
	if !o.Strict {
		s.Defaulted = soft
	}
	program, _ := b.(Program)
	if program != nil {
		external := valueOf(o.External)
		external.Life = o.Resources.Time
		s.External = &external
		asked.Resources.Time = 0 // its sandbox has a time of its own
	}
	if s.Network == "host" {
		s.Network = ""
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
	if o.Template != "" {
		if o.Image, err = e.envImage(ctx, o); err != nil {
			return nil, err
		}
	}
	if err := settleEnvPlace(s, o); err != nil {
		return nil, err
	}
	if err := checkMounts(s.Mounts); err != nil {
		return nil, err
	}
	if s.Level == jobs.LevelFS && s.Login == nil {
		if err := e.checkPrivate(s.Mounts); err != nil {
			return nil, err
		}
	}
	for _, m := range s.Mounts {
		if _, err := os.Stat(m.Source); err != nil && s.Backend != jobs.BackendSSH && s.Login == nil {
			return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "the bind source " + m.Source + " does not exist",
				Hint: "make it, or correct the path before the first colon"}
		}
	}
	if program != nil {
		return s, program.Settle(ctx, s)
	}
	return s, e.fetchFor(ctx, s, o.Offline)
}

// settleEnvPlace fills in what belongs to the backend.
func settleEnvPlace(s *jobs.EnvSpec, o EnvOptions) error {
	// What a program can do it says itself, see [Program.Settle].
	program, docker, host := s.External != nil, valueOf(o.Docker), valueOf(o.SSH)
	contained := s.Level != jobs.LevelNone || program
	if o.Discard && !contained {
		return absent("throw-away files", &s.Place)
	}
	if contained && s.Scheduler == "" { // an allocation has what its site gives
		if o.Resources.CPUs == 0 && !o.Strict {
			s.Resources.CPUs = defaultCPUs
			s.Defaulted = append(s.Defaulted, "cpus")
		}
		if o.Resources.Memory == 0 && !o.Strict {
			s.Resources.Memory = defaultMemory
			s.Defaulted = append(s.Defaulted, "memory")
		}
	}
	s.Overlay = jobs.OverlaySpec{}
	if program {
		s.Image = strings.TrimPrefix(o.Image, "docker://")
		return nil
	}
	switch s.Backend {
	case jobs.BackendSingularity:
		s.Image = o.Image
		if s.Image == "" {
			s.Image = s.Profile.Image
		}
		if s.Image == "" {
			s.Image = "docker://" + jobs.DefaultImage
		}
		if images.IsTagged(s.Image) {
			s.Image = "docker://" + s.Image
		}
		if !images.IsReference(s.Image) && !strings.Contains(s.Image, "://") && s.Login == nil {
			abs, err := filepath.Abs(s.Image)
			if err != nil {
				return err
			}
			if _, err := os.Stat(abs); err != nil {
				return &jobs.Error{Kind: jobs.KindNotFound, Msg: "image " + abs + " does not exist",
					Hint: "give a SIF file, an unpacked image's directory, or a reference such as docker://debian:12"}
			}
			s.Image = abs
		}
		s.Overlay = jobs.OverlaySpec{Driver: unlessAuto(o.Overlay.Driver), Size: s.Resources.Disk}
	case jobs.BackendDocker:
		s.Image = strings.TrimPrefix(o.Image, "docker://")
		if s.Image == "" {
			s.Image = jobs.DefaultImage
		}
		if images.IsReference(s.Image) {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "docker cannot take the image " + s.Image, Hint: "name one such as debian:12, or use --backend singularity"}
		}
		d := docker
		if d.Pids == 0 {
			d.Pids = defaultPids
		}
		if d.Shm == 0 {
			d.Shm = defaultShm
		}
		s.Docker = &d
	case jobs.BackendSSH:
		if host.Host == "" {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "the backend ssh needs a host", Hint: "--host HOST, or berth config set terminal.ssh_host HOST"}
		}
		s.SSH = &host
		s.Notes = append(s.Notes, "backend ssh: no containment; commands have all the rights of the user on "+host.Host)
	case jobs.BackendLocal:
		s.Notes = append(s.Notes, "backend local: no containment; commands have all the rights of "+s.User)
	}
	return nil
}
