package apptainer

import (
	"os"

	"berth/internal/node/container"
	"berth/jobs"
)

// jobMemory returns the memory that the cgroup of the Slurm job allows in which
// this process runs, 0 for all; ok is false outside of a job with a cgroup.
func jobMemory() (limit jobs.Bytes, ok bool) {
	g := container.OwnCgroup("/proc/self/cgroup", "/sys/fs/cgroup").ForJob(os.Getenv("SLURM_JOB_ID"))
	return g.Limit(), g != nil
}

// slowMount is [container.SlowMount].
func slowMount(said string) bool { return container.SlowMount(said) }
