package batch

import (
	"slices"
	"testing"
)

func TestPassed(t *testing.T) {
	got := Passed([]string{
		"PATH=/bin", "CUDA_VISIBLE_DEVICES=0,1", "ROCR_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=2", "SLURM_PROCID=3", "SLURM_GPUS=2", "SLURM_GPUS_ON_NODE=1", "SLURM_ARRAY_TASK_ID=7",
		"SLURM_SUBMIT_HOST=login", "SLURM_SUBMIT_DIR=/home/alice", "SLURM_LAUNCH_NODE_IPADDR=10.0.0.1", "SLURM_SRUN_COMM_HOST=10.0.0.1", "SLURM_CONF=/etc/slurm/slurm.conf", "SLURM_JOB_USER=alice", "SLURM_PROCID2=1",
		"SLURM_TMPDIR=/tmp/x", "SLURM_JWT=secret", "API_KEY=secret",
	})
	want := []string{"CUDA_VISIBLE_DEVICES=0,1", "HIP_VISIBLE_DEVICES=2", "SLURM_PROCID=3", "SLURM_GPUS=2", "SLURM_GPUS_ON_NODE=1", "SLURM_ARRAY_TASK_ID=7"}
	if !slices.Equal(got, want) {
		t.Errorf("passed %q\nwant   %q", got, want)
	}
}
