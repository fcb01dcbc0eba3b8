package doctor

import (
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

// cluster is a machine with the programs of a Slurm, which print what was
// captured, or what a test says.
func cluster(t *testing.T, changes map[string]string) Where {
	t.Helper()
	data, err := filepath.Abs("../../slurm/examine/testdata")
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[string]string{
		"sbatch": "echo slurm-wlm 24.11.5", "squeue": "exit 0", "scancel": "exit 0", "srun": "exit 0", "sacct": "exit 0",
		"scontrol": `case "$*" in "show config") c=$(<` + data + `/config-24.11.txt); printf 'Configuration data as of %(%FT%T)T\n' -1; echo "${c#*$'\n'}";; "show partition -o") echo "$(<` + data + `/partitions-24.11.txt)";; *) exit 64;; esac`,
		"sacctmgr": `echo 'lab||||normal,short|'; echo 'side|||40|normal|'`, "sinfo": `echo gpu:2`,
	}
	for name, text := range changes {
		if text == "" {
			delete(scripts, name)
		} else {
			scripts[name] = text
		}
	}
	w := where(t)
	bin := programs(t, scripts)
	env := map[string]string{"HOME": w.Getenv("HOME"), "TMPDIR": w.Getenv("TMPDIR"), "PATH": bin}
	w.Getenv = func(n string) string { return env[n] }
	return w
}

// TestChosen: what is chosen decides what fails.
func TestChosen(t *testing.T) {
	down := map[string]string{"scontrol": "echo down >&2; exit 1"}
	for _, c := range []struct {
		name    string
		changes map[string]string
		with    func(*Where)
		ok      bool
		why     map[string]string
	}{
		{"a cluster", nil, nil, true, map[string]string{IDScheduler: "slurm (chosen: Slurm is here)", IDBackend: "which need not have it to submit"}},
		{"controller down", down, nil, false, map[string]string{IDScheduler: "slurm (chosen: Slurm is here) cannot be used: slurmctld does not answer"}},
		{"controller down but local", down, func(w *Where) { w.Scheduler, w.Backend = jobs.SchedulerLocal, jobs.BackendLocal }, true, map[string]string{IDScheduler: "local (configured)", IDBackend: "no containment"}},
		{"local without containers", nil, func(w *Where) { w.Scheduler = jobs.SchedulerLocal }, false, map[string]string{IDBackend: "nothing that contains a task works here"}},
		{"slurm wanted", map[string]string{"sbatch": "", "squeue": "", "scancel": "", "scontrol": ""}, func(w *Where) { w.Scheduler = jobs.SchedulerSlurm }, false, map[string]string{IDScheduler: "slurm (configured) cannot be used: Slurm's commands are not on PATH"}},
		{"of the profile", nil, func(w *Where) { w.Profile.Scheduler, w.Backend = jobs.SchedulerLocal, jobs.BackendLocal }, true, map[string]string{IDScheduler: "local (the profile's)"}},
		{"no such backend", nil, func(w *Where) { w.Backend = "podman" }, false, map[string]string{IDBackend: "berth has no such backend"}},
		{"on a node", nil, func(w *Where) { w.Where = "node" }, false, map[string]string{IDBackend: "singularity (what jobs of Slurm use) does not work"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("PATH", "") // docker and ssh are looked up by their backends
			w := cluster(t, c.changes)
			if c.with != nil {
				c.with(&w)
			}
			p := Run(t.Context(), w)
			if p.OK() != c.ok {
				for _, f := range p.Findings {
					t.Logf("%s %v %s: %s", f.Status, f.Configured, f.ID, f.Why)
				}
				t.Errorf("ok is %v", p.OK())
			}
			for id, why := range c.why {
				if got := p.Find(id); !strings.Contains(got.Why, why) || got.Status == Fail && got.Do == "" {
					t.Errorf("%s: %+v, want %q", id, got, why)
				}
			}
		})
	}
}
