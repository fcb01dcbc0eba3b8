package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// cluster is a machine with the programs of a Slurm, which print what was
// captured, or what a test says.
func cluster(t *testing.T, changes map[string]string) Where {
	t.Helper()
	data, err := filepath.Abs("testdata")
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

// config is the captured configuration with lines of it changed.
func config(t *testing.T, changes ...string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/config-24.11.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	for _, c := range changes {
		name, _, _ := strings.Cut(c, " =")
		found := false
		for i, l := range lines {
			if n, _, ok := strings.Cut(l, "="); ok && strings.TrimSpace(n) == name || i == 0 && strings.HasPrefix(c, "Configuration ") {
				lines[i], found = c, true
			}
		}
		if !found {
			lines = append(lines, c)
		}
	}
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return `case "$*" in "show config") c=$(<` + file + `); echo "${c/@NOW@/$NOW}";; "show partition -o") echo "$(<$PARTS)";; esac`
}

func TestSlurm(t *testing.T) {
	// The controller's clock is read when it is asked for it.
	clock := func(shift time.Duration) map[string]string {
		now := fmt.Sprintf(`export TZ=UTC; printf -v NOW '%%(%%s)T' -1; printf -v NOW '%%(%%FT%%T)T' $((NOW + %d)); `, int(shift.Seconds()))
		return map[string]string{"scontrol": now + config(t, "Configuration data as of @NOW@")}
	}
	account := func(name string) func(*Where) {
		return func(w *Where) { w.Profile.Slurm.Account = name }
	}
	for _, c := range []struct {
		name, id string
		changes  map[string]string
		with     func(*Where)
		want     []string
	}{
		{name: "programs", id: "slurm.programs", want: []string{"ok Slurm 24.11.5", "warn CVE-2026-65107"}},
		{name: "none", id: "slurm.programs", changes: map[string]string{"sbatch": "", "squeue": "", "scancel": "", "scontrol": ""}, want: []string{"skip sbatch is not on PATH"}},
		{name: "some", id: "slurm.programs", changes: map[string]string{"squeue": "", "scancel": ""}, want: []string{"fail not on PATH: squeue, scancel"}},
		{name: "no srun", id: "slurm.programs", changes: map[string]string{"srun": "", "sbatch": "echo; echo '** welcome **'; echo slurm 26.05.5"}, want: []string{"warn Slurm 26.05.5, without srun"}},
		{name: "old", id: "slurm.programs", changes: map[string]string{"sbatch": "echo slurm 20.11.4"}, want: []string{"warn older than what berth was tried with", "warn CVE-2022-29500", "warn CVE-2023-41914", "warn CVE-2023-49933", "warn CVE-2025-43904", "warn CVE-2026-65107"}},
		{name: "broken", id: "slurm.programs", changes: map[string]string{"sbatch": "echo 'sbatch: error: no munge' >&2; exit 1"}, want: []string{"fail sbatch does not run: sbatch: error: no munge"}},
		{name: "lies", id: "slurm.programs", changes: map[string]string{"sbatch": "echo have a nice day"}, want: []string{"warn printed no version"}},

		{name: "up", id: "slurm.controller", want: []string{"ok slurmctld on ctl answers, cluster tb2411standard"}},
		{name: "down", id: "slurm.controller", changes: map[string]string{"scontrol": "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)' >&2; exit 1"}, want: []string{"fail slurmctld does not answer: scontrol: slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"}},
		{name: "says nothing", id: "slurm.controller", changes: map[string]string{"scontrol": "exit 0"}, want: []string{"fail printed no configuration"}},
		{name: "no Slurm", id: "slurm.controller", changes: map[string]string{"scontrol": ""}},
		{name: "down, others", id: "slurm.ending", changes: map[string]string{"scontrol": "exit 1"}, want: []string{"skip slurmctld could not be asked"}},

		{name: "clock", id: "slurm.clock", changes: clock(0), want: []string{"ok agree"}},
		{name: "clock behind", id: "slurm.clock", changes: clock(-40 * time.Second), want: []string{"warn from slurmctld's"}},
		{name: "clock ahead", id: "slurm.clock", changes: clock(10 * time.Minute), want: []string{"fail munge refuses"}},
		{name: "no clock", id: "slurm.clock", changes: map[string]string{"scontrol": config(t, "Configuration data as of never")}, want: []string{"skip no time"}},

		{name: "accounting", id: "slurm.accounting", want: []string{"ok sacct answers"}},
		{name: "no slurmdbd", id: "slurm.accounting", changes: map[string]string{"scontrol": config(t, "AccountingStorageType = (null)")}, want: []string{"warn forgotten 5m0s after its end"}},
		{name: "slurmdbd down", id: "slurm.accounting", changes: map[string]string{"sacct": "echo 'sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection' >&2; exit 1"}, want: []string{"warn sacct does not answer: sacct: error:"}},
		{name: "no sacct", id: "slurm.accounting", changes: map[string]string{"sacct": ""}, want: []string{"warn sacct is not on PATH"}},

		{name: "accounts", id: "slurm.account", want: []string{"ok lab, side (side: 40 jobs submitted at a time)"}},
		{name: "the profile's", id: "slurm.account", with: account("side"), want: []string{"ok lab, side"}},
		{name: "a wrong one", id: "slurm.account", with: account("phys"), want: []string{"fail the account phys is none of yours: lab, side"}},
		{name: "a wrong one, not enforced", id: "slurm.account", with: account("phys"), changes: map[string]string{"scontrol": config(t, "AccountingStorageEnforce = none")}, want: []string{"warn none of yours"}},
		{name: "none demanded", id: "slurm.account", changes: map[string]string{"sacctmgr": "exit 0", "scontrol": config(t, "AccountingStorageEnforce = none")}, want: []string{"ok none is demanded"}},
		{name: "no account", id: "slurm.account", changes: map[string]string{"sacctmgr": "exit 0"}, want: []string{"fail has no account on this cluster"}},

		{name: "partition", id: "slurm.partitions", want: []string{"ok main: up, limit 1-00:00:00, default time 01:00:00, 2 nodes, 500 MiB a CPU"}},
		{name: "partition of the profile", id: "slurm.partitions", with: func(w *Where) { w.Profile.Slurm.Partition = "urgent" }, want: []string{"ok urgent: up"}},
		{name: "no such partition", id: "slurm.partitions", with: func(w *Where) { w.Profile.Slurm.Partition = "gpu" }, want: []string{"fail gpu does not exist: there are main, urgent"}},

		{name: "ending", id: "slurm.ending", want: []string{"warn 5s between TERM and KILL is little", "ok proctrack/cgroup", "ok preempt/partition_prio, mode REQUEUE", "ok squeue knows them for 5m0s"}},
		{name: "unkind", id: "slurm.ending", changes: map[string]string{"scontrol": config(t, "KillWait = 30 sec", "ProctrackType = proctrack/linuxproc", "PreemptType = (null)")}, want: []string{"ok 30s", "warn proctrack/linuxproc: a process that detaches itself", "ok squeue"}},
		{name: "memory", id: "slurm.memory", want: []string{"ok is ended (cgroup/v1)"}},
		{name: "memory not counted", id: "slurm.memory", changes: map[string]string{"scontrol": config(t, "SelectTypeParameters = CR_CPU")}, want: []string{"warn does not hand out memory here (CR_CPU)"}},
		{name: "memory not held", id: "slurm.memory", changes: map[string]string{"scontrol": config(t, "ConstrainRAMSpace = no")}, want: []string{"warn does not hold it"}},
		{name: "tmp", id: "slurm.tmp", want: []string{"ok share the node's /tmp"}},
		{name: "own tmp", id: "slurm.tmp", changes: map[string]string{"scontrol": config(t, "JobContainerType = job_container/tmpfs")}, want: []string{"ok a /tmp of its own"}},
		{name: "limits", id: "slurm.limits", want: []string{"ok MaxJobCount 10000 on the whole cluster, MaxArraySize 1001"}},
		{name: "gpus", id: "slurm.gpus", want: []string{"ok no types"}},
		{name: "gpu types", id: "slurm.gpus", with: func(w *Where) { w.Profile.GPUType = "v100" }, changes: map[string]string{"sinfo": "echo 'gpu:a100:4(S:0-1),shard:8'; echo 'gpu:h100:2'; echo '(null)'"}, want: []string{"fail v100 does not exist: there are a100, h100"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			parts, err := filepath.Abs("testdata/partitions-24.11.txt")
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("PARTS", parts)
			w := cluster(t, c.changes)
			if c.with != nil {
				c.with(&w)
			}
			expect(t, c.name, lookAt(t, w, c.id), c.want...)
		})
	}
}

func TestGPUTypes(t *testing.T) {
	for out, want := range map[string]string{
		"gpu:2": "", "gpu:a100:2": "a100", "gpu:a100:2(S:0),gpu:v100:1\ngpu:a100:2": "a100 v100", "(null)": "", "gpu:4(S:0-1)": "", "shard:a:2": "", "": "",
	} {
		types, _ := gpuTypes(out)
		if got := strings.Join(types, " "); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
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
