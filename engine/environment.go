package engine

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"berth/jobs"
	"berth/jobs/store"
)

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
func (e *Engine) Environment(ctx context.Context, o jobs.EnvOptions) (*Environment, error) {
	name := o.EnvName()
	if PerTask(o) {
		own, err := ownName()
		if err != nil {
			return nil, err
		}
		name = own
	}
	if err := store.CheckEnvName(name); err != nil {
		return nil, err
	}
	if err := checkEnvOptions(o); err != nil {
		return nil, err
	}
	dir := e.Store.EnvDir(name)
	spec, err := store.LoadEnv(dir)
	left := "" // of the one before
	if err == nil {
		gone, note, xerr := e.expired(ctx, spec)
		if xerr != nil {
			return nil, xerr
		}
		left = note
		if gone {
			spec, err = store.LoadEnv(dir)
		}
	}
	made := false
	if jobs.KindOf(err) == jobs.KindNotFound {
		var fresh *jobs.EnvSpec
		if fresh, err = e.planEnv(ctx, name, o); err != nil {
			return nil, err
		}
		fresh.Created = e.Now().UTC() // its image is here
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
	if err := sameConfigured(spec, o); err != nil {
		return nil, err
	}
	if err := sameProject(spec, o); err != nil {
		return nil, err
	}
	v := &Environment{e: e, Spec: *spec, dir: dir, fresh: made, made: made}
	if made {
		v.notes = slices.Clone(spec.Notes) // what was chosen, and that nothing is contained
		if left != "" {
			v.notes = append(v.notes, left)
		}
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

// Record is the file of what is recorded of the environment. It is written once: where it is still the
// same, so is the environment.
func (v *Environment) Record() (fs.FileInfo, error) {
	return os.Lstat(filepath.Join(v.dir, store.FileEnv))
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
