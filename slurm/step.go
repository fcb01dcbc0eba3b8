package slurm

import (
	"strings"

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
	s.cfg.Note(words[0])
	if s.cfg.Login != "" { // with that place's environment, and not with ours
		return jobs.Cmd{Argv: append([]string{"/bin/sh", "-c", stepInLogin, "sh", "0"}, words...)}
	}
	return jobs.Cmd{Argv: words, Env: site.Environ(s.cfg.Environ)}
}

// Show implements [jobs.Cluster].
func (*Scheduler) Show(h jobs.Handle) string { return "scontrol show job " + h.NativeID }

// StepError reads srun's words.
func (*Scheduler) StepError(h jobs.Handle, said string) (kind jobs.Kind, hint string, again bool) {
	low, native := strings.ToLower(said), h.NativeID
	has := func(words ...string) bool { return containsAny(low, words) }
	switch {
	case has("invalid job id", "already completing or completed", "expired or invalid job", "job/step already"):
		return jobs.KindNotFound, "it has just ended, or is not of this cluster: squeue -j " + native, false
	case has("unrecognized option '--overlap'", "unknown option", "invalid option"):
		return jobs.KindConfig, "this srun is older than 20.11, which cannot start a step beside another", false
	case has("access/permission denied", "user not in group", "not allowed"):
		return jobs.KindAuth, "this site does not let steps be started from this machine; try it on the node: ssh NODE", false
	case has("command not found", "no such file or directory"):
		return jobs.KindConfig, "do the nodes see the state directory? it must be on a file system that they share", false
	case has("temporarily", "busy", "nodes are busy", "try again", "unable to contact slurm controller", "socket timed out", "communication"):
		return jobs.KindAgain, "try again in a moment; see scontrol ping, and squeue -s -j " + native, true
	}
	return jobs.KindInfra, "by hand: srun --jobid " + native + " --overlap hostname", false
}
