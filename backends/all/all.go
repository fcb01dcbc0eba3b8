// Package all registers the backends and schedulers that berth has. Nothing else
// does, but package internal/node/batch for the programs of the nodes.
package all

import (
	"berth/apptainer"
	"berth/backends/docker"
	"berth/backends/local"
	"berth/backends/ssh"
	"berth/jobs"
)

// Backends returns all backends, whose programs are started by on, in the
// order in which "auto" tries those that contain.
func Backends(on jobs.Starter) []jobs.Backend {
	return []jobs.Backend{&apptainer.Backend{On: on}, &docker.Backend{On: on}, ssh.Backend{On: on}, local.Backend{}}
}
