package slurm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
	"berth/slurm"
)

func TestStep(t *testing.T) {
	h := jobs.Handle{NativeID: "17", Cluster: "far"}
	c := slurm.New(nil, slurm.Config{Environ: []string{"A=b", "SLURM_JOB_ID=3", "SRUN_DEBUG=1", "SLURM_CONF=/x"}}).Step(h, "c1", []string{"/bin/node", "connect", "a b"})
	want := "srun --jobid=17 --overlap --nodes=1 --ntasks=1 --mpi=none --export=NONE --unbuffered --quiet --clusters=far --nodelist=c1 -- /bin/node connect a b"
	if got := strings.Join(c.Argv, " "); got != want || len(c.Argv) != 15 {
		t.Errorf("%d words: %s", len(c.Argv), got)
	}
	if env := strings.Join(c.Env, " "); !strings.Contains(env, "A=b") || !strings.Contains(env, "SLURM_CONF=/x") || strings.Contains(env, "SLURM_JOB_ID") || strings.Contains(env, "SRUN_DEBUG") {
		t.Errorf("environment %s", env)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// On another machine the step has the environment of a login there, without
// what would change srun.
func TestStepInLogin(t *testing.T) {
	env, dir := site(t, map[string]string{"srun": `env >"$HOME/env"; printf '%s\n' "$@" >"$HOME/args"; cat`})
	c := slurm.New(nil, slurm.Config{Login: "ada@login"}).Step(jobs.Handle{NativeID: "17"}, "", []string{"/bin/node", "it's", "$(x)"})
	if c.Env != nil {
		t.Errorf("environment %v", c.Env)
	}
	var out strings.Builder
	c.Stdin, c.Stdout = strings.NewReader("through"), &out
	p, err := there{env: env}.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || !exit.OK() || out.String() != "through" {
		t.Errorf("%v %v %q", exit, err, out.String())
	}
	if args := read(t, dir, "args"); !strings.HasSuffix(args, "--\n/bin/node\nit's\n$(x)\n") {
		t.Errorf("arguments %q", args)
	}
	if env := read(t, dir, "env"); strings.Contains(env, "SBATCH_ACCOUNT") || !strings.Contains(env, "SLURM_CONF=/etc/theirs") {
		t.Errorf("environment %s", env)
	}
}

func TestStepError(t *testing.T) {
	for words, want := range map[string]struct {
		kind  jobs.Kind
		again bool
		hint  string
	}{
		"srun: error: Unable to create step for job 7: Job/step already completing or completed": {jobs.KindNotFound, false, "squeue -j 7"},
		"srun: error: Unable to confirm allocation for job 7: Invalid job id specified":          {jobs.KindNotFound, false, "squeue -j 7"},
		"srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)":    {jobs.KindAgain, true, "try again"},
		"srun: error: Unable to contact slurm controller (connect failure)":                      {jobs.KindAgain, true, "scontrol ping"},
		"srun: unrecognized option '--overlap'":                                                  {jobs.KindConfig, false, "older than 20.11"},
		"slurmstepd: error: execve(): /x/berth-node: No such file or directory":                  {jobs.KindConfig, false, "share"},
		"srun: error: Access/permission denied":                                                  {jobs.KindAuth, false, ""},
		"srun: something new":                                                                    {jobs.KindInfra, false, "srun --jobid 7 --overlap"},
		"":                                                                                       {jobs.KindInfra, false, "srun --jobid 7 --overlap"},
	} {
		kind, hint, again := (*slurm.Scheduler)(nil).StepError(jobs.Handle{NativeID: "7"}, words)
		if kind != want.kind || again != want.again || !strings.Contains(hint, want.hint) {
			t.Errorf("%s: kind %d, again %v, hint %q", words, kind, again, hint)
		}
	}
}
