package inside

import (
	"strconv"

	"berth/jobs"
)

// Ranks writes the srun that runs argv in each task of the job. What it does
// not say, srun takes from the variables of the job (srun(1), INPUT
// ENVIRONMENT VARIABLES): its nodes, its memory, its GPUs.
//
//   - --label: every piece of output is told apart by its task.
//   - --kill-on-bad-exit=0, --wait=0: the runner ends the other tasks when one
//     fails, with TERM first and with time to clean up. Sites may have set both
//     otherwise.
//   - --cpus-per-task: srun does not inherit it from Slurm 22.05 to 23.11.
func (Slurm) Ranks(r jobs.Resources, o jobs.SlurmOptions, argv []string) []string {
	srun := []string{"srun", "--ntasks=" + strconv.Itoa(r.Tasks), "--label", "--kill-on-bad-exit=0", "--wait=0", "--export=ALL"}
	if r.CPUs > 0 {
		srun = append(srun, "--cpus-per-task="+strconv.Itoa(r.CPUs))
	}
	if o.MPI != "" {
		srun = append(srun, "--mpi="+o.MPI)
	}
	return append(srun, argv...)
}
