package inside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
)

// answering is a place where every program prints the same.
type answering struct {
	text string
	code int
	err  error
}

func (a answering) Start(_ context.Context, c jobs.Cmd) (jobs.Process, error) {
	if a.err != nil {
		return nil, a.err
	}
	if strings.Join(c.Argv, " ") != "scontrol show config" {
		return nil, fmt.Errorf("unexpected command: %q", c.Argv)
	}
	_, err := c.Stdout.Write([]byte(a.text))
	return a, err
}

func (answering) Signal(syscall.Signal) error { return nil }

func (a answering) Wait() (jobs.Exit, error) { return jobs.Exit{Started: true, Code: a.code}, nil }

func TestKillWait(t *testing.T) {
	for _, c := range []struct {
		on   answering
		want time.Duration
	}{
		{answering{text: "Banner\nKillOnBadExit           = 0\nKillWait                = 30 sec\nX = 1\n"}, 30 * time.Second},
		{answering{text: "KillWait=300 sec\n"}, 300 * time.Second},
		{answering{text: "KillWait = 0 sec\n"}, 0},
		{answering{text: "KillWait = soon\n"}, 5 * time.Second},
		{answering{text: "KillWait = 99999999999999999999 sec\n"}, 5 * time.Second},
		{answering{}, 5 * time.Second},
		{answering{text: "KillWait = 30 sec\n", code: 1}, 5 * time.Second},
		{answering{err: errors.New("no scontrol")}, 5 * time.Second},
	} {
		if got := (Slurm{}).KillWait(t.Context(), c.on); got != c.want {
			t.Errorf("%+v: %v, want %v", c.on, got, c.want)
		}
	}
}

func TestRankPassed(t *testing.T) {
	environ := []string{"PATH=/bin", "PMIX_RANK=1", "PMIX_SERVER_TMPDIR=/var/spool/x", "PMIX_SYSTEM_TMPDIR=/tmp", "PMIX_GDS_MODULE=shmem2,hash", "PMI_FD=17", "SLURM_PMIX_MAPPING_SERV=x"}
	got := Slurm{}.RankPassed(jobs.SlurmOptions{MPI: "pmix"}, environ)
	if want := []string{"PMIX_RANK=1", "PMIX_GDS_MODULE=hash"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (Slurm{}).RankPassed(jobs.SlurmOptions{}, environ); got != nil {
		t.Errorf("without PMIx: %q", got)
	}
}

func TestRankEnded(t *testing.T) {
	for _, c := range []struct {
		line, how string
		in, out   int
	}{
		{"srun: error: c2: task 1: Killed", "Killed", 1, 0},
		{"srun: error: c1: tasks 0-1: Exited with exit code 143", "Exited with exit code 143", 1, 2},
		{"srun: error: node-1.x: tasks 1,4-6,12: Out Of Memory", "Out Of Memory", 5, 2},
		{"srun: error: node-1.x: tasks 1,4-6,12: Out Of Memory", "Out Of Memory", 12, 7},
	} {
		among, how, ok := Slurm{}.RankEnded(c.line)
		if !ok || how != c.how || !among(c.in) || among(c.out) {
			t.Errorf("%s: %v %q", c.line, ok, how)
		}
	}
	if _, _, ok := (Slurm{}).RankEnded("srun: error: Unable to create step for job 7: Invalid"); ok || among("x-3,", 2) {
		t.Error("nonsense is taken for tasks")
	}
}

// A batch process and a step's are told their job; who is in none has nothing of it.
func TestJob(t *testing.T) {
	set := map[string]string{"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "berth-x", "SLURMD_NODENAME": "c1", "SLURM_PROCID": "3", "SLURM_RESTART_COUNT": "2", "SLURM_JOB_START_TIME": "100", "SLURM_JOB_END_TIME": "Unknown"}
	job, ok := Slurm{}.Job(func(name string) string { return set[name] })
	if want := (jobs.NodeJob{ID: "17", Name: "berth-x", Node: "c1", Rank: "3", Restart: 2, Began: time.Unix(100, 0)}); !ok || job != want {
		t.Errorf("%v %+v, want %+v", ok, job, want)
	}
	if job, ok := (Slurm{}).Job(func(string) string { return "" }); ok || job != (jobs.NodeJob{}) {
		t.Errorf("without a job: %+v", job)
	}
}
