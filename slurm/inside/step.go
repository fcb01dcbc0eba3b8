package inside

import (
	"context"
	"os"
	"strconv"
	"strings"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/slurm/site"
)

// Step writes the srun of a step beside others in the job: --exact gives it just the CPUs
// that it says, and --mem its memory, without which it had all of the job's and the next
// one would wait. srun ends with the highest exit code of its tasks.
func (Slurm) Step(name string, r jobs.Resources, o jobs.SlurmOptions, argv []string) []string {
	srun := []string{"srun", "--job-name=" + name, "--nodes=1", "--ntasks=" + strconv.Itoa(r.Tasks),
		"--cpus-per-task=" + strconv.Itoa(max(r.CPUs, 1)), "--exact",
		"--mem=" + strconv.FormatInt(max(int64(r.Memory/jobs.MiB), 1), 10) + "M",
		"--kill-on-bad-exit=1", "--wait=0", "--export=ALL", "--unbuffered", "--quiet"}
	if r.GPUs != "" { // which it would take all of, so that the next one waits
		srun = append(srun, "--gres=none")
	}
	if o.MPI != "" {
		srun = append(srun, "--mpi="+o.MPI)
	}
	return append(append(srun, "--"), argv...)
}

// EndStep asks squeue for the numbers of the steps: scancel finds jobs by a name, and no
// steps. A step whose srun was killed goes on until the job's end (tried with 24.11).
func (Slurm) EndStep(ctx context.Context, on jobs.Starter, id, name string) error {
	out, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{"squeue", "-h", "-s", "-j", id, "-o", "%i %j"}, Env: site.Environ(os.Environ())})
	if err != nil {
		return err
	}
	var steps []string
	for line := range strings.Lines(string(out)) {
		if step, its, ok := strings.Cut(strings.TrimSpace(line), " "); ok && its == name {
			steps = append(steps, step)
		}
	}
	if len(steps) == 0 {
		return nil
	}
	_, err = run.Output(ctx, on, jobs.Cmd{Argv: append([]string{"scancel", "--signal=KILL"}, steps...), Env: site.Environ(os.Environ())})
	return err
}
