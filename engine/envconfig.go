package engine

import (
	"path/filepath"
	"slices"

	"berth/internal/config/keys"
	"berth/jobs"
)

// placed tells whether the place that the configuration names is what the
// caller means: no environment was named that has one of its own, or the
// target was named beside it.
func placed(o jobs.EnvOptions) bool {
	return o.Configured != nil && (o.Name == "" || o.Configured.Named)
}

// sameConfigured refuses an environment that has the name of the configured backend, or
// of the target, and is in another place. With backend = "docker", commands must not
// run on the bare host because an environment of the name "docker" exists there, nor
// on another host than the configured one.
func sameConfigured(s *jobs.EnvSpec, o jobs.EnvOptions) error {
	if !placed(o) {
		return nil
	}
	if want := unlessAuto(wantedBackend(o)); want != "" && s.Backend != want {
		return differs(s, "another backend: "+s.Backend+", not "+want+", which the configuration names")
	}
	if s.SSH == nil || valueOf(o.SSH).Host != "" || o.Configured.For == nil {
		return nil
	}
	d, _, err := o.Configured.For(s.Backend)
	if err != nil {
		return err
	}
	if h := valueOf(d.SSH); h.Host != "" && (h.Host != s.SSH.Host || h.User != s.SSH.User || h.Port != s.SSH.Port) {
		return differs(s, "another host: "+s.SSH.Host+", not "+h.Host+", which the configuration names")
	}
	return nil
}

// sameProject refuses an environment that was made with the berth.toml of another
// project, unless the environment is named. Its image and its variables came with
// that repository, and a user who works elsewhere does not expect commands to run
// in it.
func sameProject(s *jobs.EnvSpec, o jobs.EnvOptions) error {
	if o.Name != "" || o.Configured == nil || s.Project == "" || s.Project == o.Configured.Project {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindUsage,
		Msg: "the environment " + s.Name + " was made as " + filepath.Join(s.Project, "berth.toml") + " says, which does not count here",
		Hint: "make another one with --env NAME; or remove this one with its files: berth env rm " + s.Name +
			"; or, if it is to be used all the same: --env " + s.Name}
}

// wantedBackend is the backend that the options name, else the configuration.
func wantedBackend(o jobs.EnvOptions) string {
	if o.Backend == "" && o.Configured != nil {
		return o.Configured.Backend
	}
	return o.Backend
}

// configured fills in what the configuration says for a backend and the
// options do not. It also returns the limits that come from there, which are
// dropped with a note where they cannot be held, and notes.
func configured(o jobs.EnvOptions, backend string) (_ jobs.EnvOptions, soft, notes []string, err error) {
	if o.Configured == nil || o.Configured.For == nil {
		return o, nil, nil, nil
	}
	d, notes, err := o.Configured.For(backend)
	if err != nil {
		return o, nil, nil, err
	}
	if err := checkEnvOptions(d); err != nil {
		return o, nil, nil, err
	}
	if d.Resources.Disk > 0 && o.Resources.Disk == 0 && (o.Overlay.Driver == jobs.DriverKernel || o.Overlay.Driver == jobs.DriverFuse) {
		notes = append(notes, "the configured size of the writable layer is dropped: only the overlay driver ext3 has one")
		d.Resources.Disk = 0
	}
	for _, l := range []struct {
		name     string
		unset    bool
		declared bool
	}{
		{"cpus", o.Resources.CPUs == 0, d.Resources.CPUs > 0},
		{"memory", o.Resources.Memory == 0, d.Resources.Memory > 0},
		{"disk", o.Resources.Disk == 0, d.Resources.Disk > 0},
	} {
		if l.unset && l.declared {
			soft = append(soft, l.name)
		}
	}
	put(&o.Project, d.Project)
	if o.Template == "" && o.Image == "" {
		o.Image, o.Template = d.Image, d.Template
	}
	put(&o.Lifetime, d.Lifetime)
	if o.Keep {
		d.Destroy = false
	}
	keys.Under(&o.Place, d.Place, "")
	if host := valueOf(o.SSH); host.Host == "" {
		configured := valueOf(d.SSH)
		put(&host.Key, configured.Key)
		configured.Key, configured.Options = host.Key, append(slices.Clone(host.Options), configured.Options...)
		o.SSH = &configured
	}
	for _, n := range d.Forward {
		if !slices.Contains(o.Forward, n) {
			o.Forward = append(slices.Clone(o.Forward), n)
		}
	}
	if o.Profile.Name == "" {
		o.Profile = d.Profile
	}
	return o, soft, notes, nil
}

// put sets what is not said.
func put[T comparable](dst *T, v T) {
	var zero T
	if *dst == zero {
		*dst = v
	}
}
