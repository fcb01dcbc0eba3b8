package container

import (
	"slices"
	"strings"
)

// passed are the variables of a scheduler that commands see: what they were
// given, and their place among others. The rest of SLURM_* stays out: some of
// them hold addresses and names of the submit host and of Slurm's own servers.
var passed = []string{
	"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK",
	"SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS",
	"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID",
	"SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", "SLURM_RESTART_COUNT",
}

// passedPrefixes are families of such variables.
var passedPrefixes = []string{"SLURM_GPUS", "SLURM_ARRAY_"}

// Passed are those variables of an environment that commands in a container
// get. The runner, every rank and the keeper of an allocation pass the same.
func Passed(environ []string) []string {
	var out []string
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if value != "" && (slices.Contains(passed, name) || slices.ContainsFunc(passedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })) {
			out = append(out, e)
		}
	}
	return out
}
