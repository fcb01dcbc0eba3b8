package engine

import (
	"context"
	"slices"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// EnvOptions says which environment is wanted. What is zero is not said: the
// environment's own value counts, or the default where it is made.
type EnvOptions struct {
	Name string // "": "default", or the backend's name when Backend is named
	// Place is where its commands are to run, with these meanings:
	//   - Backend "" and "auto" are the first of Auto; others only when named.
	//   - Of the overlay only the driver is said: "", "auto", "kernel", "fuse", "ext3".
	//   - A negative limit of CPUs, memory or disk is none, not even the usual one.
	//   - Time, GPUs, nodes and tasks are of an allocation; Time also of a program's
	//     sandbox. These, scheduler, target, login, profile and Slurm's options are
	//     what a target says, and are not compared with an environment that exists.
	//   - External says the options of a backend that is a program, what can be reached
	//     from inside, and the snapshot to begin with.
	//   - Scheduler "" keeps the environment where it is used.
	jobs.Place
	// Template is a workspace template, in place of an image.
	Template string
	// Discard makes an environment whose files end with its keeper.
	Discard  bool
	Forward  []string      // NAME of the caller's, for every command; values are not recorded
	Strict   bool          // a limit that cannot be held is an error
	Lifetime time.Duration // 0 is the default, negative is for ever
	// Offline asks no registry: a reference is what the cache has of it.
	Offline bool
	// Auto are the backends that "auto" tries; none is all that contain and have images.
	Auto []string

	// Project is the directory whose berth.toml says some of this, in a way that
	// decides what commands find inside; "" is none.
	Project string

	// Configured is what the configuration says; nil is nothing.
	Configured *EnvConfig
}

// EnvConfig is what the configuration says where [EnvOptions] say nothing. It
// applies when an environment is made. An existing environment with other values
// stays as it is, because the configuration is no explicit request to change it.
type EnvConfig struct {
	Backend string // "" and "auto" are no choice
	// For returns the values that the configuration has for environments on a
	// backend, and what is to be said of them. A negative limit is none at all,
	// not even the usual one.
	For func(backend string) (o EnvOptions, notes []string, err error)
	// Named tells that the caller has named the target, or the scheduler, in so
	// many words.
	Named bool
	// Project is the directory of the berth.toml that counts here; "" is none.
	Project string
}

// Default values of an environment on singularity or docker; agents expect these.
// A default limit that cannot be enforced is dropped with a note.
const (
	defaultCPUs   = 1
	defaultMemory = 5120 * jobs.MiB
	defaultPids   = 256
	defaultShm    = jobs.GiB
)

// Environment returns the environment that is wanted, and records it when
// there is none of this name. It is made when it is first used. One that
// exists with other values than those wanted is refused.
func (e *Engine) Environment(ctx context.Context, o EnvOptions) (*Environment, error) {
	name := o.EnvName()
	if err := store.CheckEnvName(name); err != nil {
		return nil, err
	}
	if err := checkEnvOptions(o); err != nil {
		return nil, err
	}
	dir := e.Store.EnvDir(name)
	spec, err := store.LoadEnv(dir)
	made := false
	if jobs.KindOf(err) == jobs.KindNotFound {
		var fresh *jobs.EnvSpec
		if fresh, err = e.planEnv(ctx, name, o); err != nil {
			return nil, err
		}
		spec, made, err = store.CreateEnv(dir, *fresh)
	}
	if err != nil {
		return nil, err
	}
	if err := e.same(spec, o); err != nil {
		return nil, err
	}
	if !made {
		if err := e.sameTemplate(ctx, spec, o.Template); err != nil {
			return nil, err
		}
	}
	if err := o.sameConfigured(spec); err != nil {
		return nil, err
	}
	if err := o.sameProject(spec); err != nil {
		return nil, err
	}
	v := &Environment{e: e, Spec: *spec, dir: dir, fresh: made}
	if made {
		v.notes = slices.Clone(spec.Notes) // what was chosen, and that nothing is contained
	}
	return v, nil
}

// FindEnvironment returns an environment that is recorded.
func (e *Engine) FindEnvironment(name string) (*Environment, error) {
	if err := store.CheckEnvName(name); err != nil {
		return nil, err
	}
	dir := e.Store.EnvDir(name)
	spec, err := store.LoadEnv(dir)
	if err != nil {
		return nil, err
	}
	return &Environment{e: e, Spec: *spec, dir: dir}, nil
}

// Environments returns all that are recorded, by name; what could not be read
// is in the error.
func (e *Engine) Environments() ([]*Environment, error) {
	specs, err := e.Store.ListEnvs()
	out := make([]*Environment, len(specs))
	for i, s := range specs {
		out[i] = &Environment{e: e, Spec: *s, dir: e.Store.EnvDir(s.Name)}
	}
	return out, err
}

// valueOf is what a pointer points to, or nothing.
func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
