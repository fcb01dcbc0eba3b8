//go:build !embednode

package node

import (
	"berth/apptainer"
	"berth/backends/docker"
	"berth/backends/external"
	"berth/backends/local"
	"berth/backends/ssh"
	"berth/internal/sys/run"
	"berth/jobs"
)

// openers are the backends whose environments this program can keep.
func openers() []jobs.Opener {
	on := run.Local{}
	return []jobs.Opener{&apptainer.Backend{On: on}, &docker.Backend{On: on}, ssh.Backend{On: on}, local.Backend{}, &external.Backend{On: on}}
}
