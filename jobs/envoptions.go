package jobs

import "time"

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
	Place
	// Template is a workspace template, in place of an image.
	Template string
	// Keep has its files stay though the configuration destroys them.
	Keep     bool
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
	// PerTask tells whether an environment on a backend is one task's alone; nil is no.
	PerTask func(backend string) bool
}

// EnvName is the name of the environment that is meant: its own, or that of
// the place which was chosen, by words of the caller first.
func (o EnvOptions) EnvName() string {
	switch {
	case o.Name != "":
		return o.Name
	case o.Backend != "" && o.Backend != BackendAuto:
		return o.Backend
	case o.Target != "":
		return o.Target
	case o.Configured != nil && o.Configured.Backend != "" && o.Configured.Backend != BackendAuto:
		return o.Configured.Backend
	}
	return DefaultEnvironment
}
