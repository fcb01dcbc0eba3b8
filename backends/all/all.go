// Package all registers the backends and schedulers that berth has. Nothing else
// does, but package internal/node/batch for the programs of the nodes.
package all

import (
	"berth/apptainer"
	"berth/backends/bwrap"
	"berth/backends/docker"
	"berth/backends/external"
	"berth/backends/local"
	"berth/backends/ssh"
	"berth/jobs"
)

// Openers returns the backends that open places, whose programs are started by on.
// The last one is for all that are programs of their own.
func Openers(on jobs.Starter) []jobs.Opener {
	return []jobs.Opener{
		&apptainer.Backend{On: on},
		&docker.Backend{On: on},
		&bwrap.Backend{On: on},
		ssh.Backend{On: on},
		local.Backend{},
		&external.Backend{On: on},
	}
}

// Backends returns those that have a name of their own, in the order in which
// "auto" tries those that contain.
func Backends(on jobs.Starter) []jobs.Backend {
	var out []jobs.Backend
	for _, b := range Openers(on) {
		if b.Name() != jobs.BackendExternal {
			out = append(out, b)
		}
	}
	return out
}
