package engine

import (
	"slices"
	"testing"

	"berth/jobs"
)

// A child has none of its parent's options of a submission that would have it ask for
// more than it counts.
func TestChildOptions(t *testing.T) {
	of := &jobs.Spec{ID: "00000000-0000-7000-8000-000000000001"}
	of.Scheduler = jobs.SchedulerSlurm
	of.Slurm.Account = "lab"
	of.Slurm.Extra = []string{"--exclusive", "--gres=gpu:8", "--mem-per-cpu=64G", "--mincpus=64", "--gpus-per-node=8", "--reservation=r", "--exclude=n1"}
	c := &jobs.Child{Job: "00000000-0000-7000-8000-000000000002", Name: "x", Command: jobs.Command{Argv: []string{"true"}}}
	s := childOf(of, c)
	if got := s.Slurm.Extra; !slices.Equal(got, []string{"--reservation=r", "--exclude=n1"}) || s.Slurm.Account != "lab" {
		t.Errorf("%q, account %q", got, s.Slurm.Account)
	}
	if len(of.Slurm.Extra) != 7 {
		t.Errorf("its parent has %q", of.Slurm.Extra)
	}
}
