package limits

import (
	"os"

	"berth/internal/node/batch"
	"berth/internal/node/container"
	"berth/jobs"
)

// JobMemory returns the memory that the cgroup of the scheduler's job allows in which
// this process runs, 0 for all; ok is false outside of a job with a cgroup.
func JobMemory() (limit jobs.Bytes, ok bool) {
	in, job := batch.Here(os.Getenv)
	g := container.OwnCgroup("/proc/self/cgroup", "/sys/fs/cgroup").ForJob(in, job.ID)
	return g.Limit(), g != nil
}
