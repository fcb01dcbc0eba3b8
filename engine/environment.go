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
	Name    string // "": "default", or the backend's name when Backend is named
	Backend string // "" and "auto": singularity, then docker; others only when named
	Image   string
	Overlay string // driver of the writable layer: "", "auto", "kernel", "fuse", "ext3"
	// Discard makes an environment whose files end with its keeper.
	Discard  bool
	Mounts   []jobs.Mount
	Env      []string // NAME=VALUE for every command
	Forward  []string // NAME of the caller's, for every command; values are not recorded
	CPUs     int
	Memory   jobs.Bytes
	Disk     jobs.Bytes
	Strict   bool // a limit that cannot be held is an error
	GPU      string
	Network  string // "", "host" or "none"
	Fakeroot bool
	Dir      string        // where sessions begin
	Lifetime time.Duration // 0 is the default, negative is for ever
	Docker   jobs.DockerSpec
	SSH      jobs.SSHSpec
}

// Values of an environment on singularity or docker when nobody says otherwise,
// as agents are used to. A limit nobody has asked for is dropped with a note
// where it cannot be held.
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
	name := o.Name
	if name == "" {
		if name = jobs.DefaultEnvironment; o.Backend != "" && o.Backend != jobs.BackendAuto {
			name = o.Backend
		}
	}
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
	if err := sameEnv(spec, o); err != nil {
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
