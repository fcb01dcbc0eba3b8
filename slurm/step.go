package slurm

import (
	"berth/jobs"
	"berth/slurm/site"
)

// Step returns the command that runs argv beside what already runs in a job's
// allocation, on one of its nodes, with its own standard streams passed
// through. It takes nothing away from what runs there: a step with --overlap
// shares CPUs, memory and GPUs (srun(1), from 20.11; no option of memory is
// needed, tried with 22.05 to 26.05). It gets nothing of this process's
// environment but what Slurm sets. node may be empty: the first one.
func (s *Scheduler) Step(h jobs.Handle, node string, argv []string) jobs.Cmd {
	words := []string{"srun", "--jobid=" + h.NativeID, "--overlap", "--nodes=1", "--ntasks=1", "--mpi=none", "--export=NONE", "--unbuffered", "--quiet"}
	if h.Cluster != "" {
		words = append(words, "--clusters="+h.Cluster)
	}
	if node != "" {
		words = append(words, "--nodelist="+node)
	}
	words = append(append(words, "--"), argv...)
	if s.cfg.Login != "" { // with that place's environment, and not with ours
		return jobs.Cmd{Argv: append([]string{"/bin/sh", "-c", stepInLogin, "sh", "0"}, words...)}
	}
	return jobs.Cmd{Argv: words, Env: site.Environ(s.cfg.Environ)}
}
