package inside

import (
	"slices"
	"testing"

	"berth/jobs"
)

func TestRanks(t *testing.T) {
	s := Slurm{}
	got := s.Ranks(jobs.Resources{Tasks: 4}, jobs.SlurmOptions{}, []string{"node", "rank"})
	want := []string{"srun", "--ntasks=4", "--label", "--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "node", "rank"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got = s.Ranks(jobs.Resources{Tasks: 2, CPUs: 3, Nodes: 2}, jobs.SlurmOptions{MPI: "pmix"}, []string{"node"})
	want = []string{"srun", "--ntasks=2", "--label", "--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--cpus-per-task=3", "--mpi=pmix", "node"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
