package container

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/internal/run"
	"berth/jobs"
	"berth/slurm/site"
)

// JobEnd is when Slurm will end a job, or zero: SLURM_JOB_END_TIME (epoch
// seconds; sbatch(1), output environment) of the environment of its batch
// process, which 22.05 does not set, so that squeue is asked there, for 5 s at
// most.
func JobEnd(ctx context.Context, on jobs.Starter, getenv func(string) string, id string) time.Time {
	if n, err := strconv.ParseInt(getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil && n > 0 {
		return time.Unix(n, 0)
	}
	if id == "" {
		return time.Time{}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return AskJobEnd(ctx, on, id)
}

// AskJobEnd asks squeue for it: the limit of a job that runs may have been
// changed, or the job suspended. Zero is that it does not say.
func AskJobEnd(ctx context.Context, on jobs.Starter, id string) time.Time {
	env := append(site.Environ(os.Environ()), "SLURM_TIME_FORMAT=standard")
	out, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{"squeue", "-h", "-j", id, "-o", "%e"}, Env: env})
	if err != nil {
		return time.Time{}
	}
	end, err := time.ParseInLocation("2006-01-02T15:04:05", strings.TrimSpace(string(out)), time.Local)
	if err != nil {
		return time.Time{} // "N/A", "NONE": without a limit
	}
	return end
}
