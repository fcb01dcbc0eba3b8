package examine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/finding"
	"berth/jobs/jobstest"
)

// cluster is a machine with the programs of a Slurm, which print what was
// captured, or what a test says.
func cluster(t *testing.T, changes map[string]string) Machine {
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
	bin := t.TempDir()
	for name, text := range changes {
		scripts[name] = text
	}
	for name, text := range scripts {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/bash\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Machine{User: func() string { return "ada" },
		Look: func(program string) string {
			p := filepath.Join(bin, program)
			if _, err := os.Stat(p); err != nil {
				return ""
			}
			return p
		},
		Ask: func(ctx context.Context, env []string, argv ...string) (string, error) {
			out, err := run.Output(ctx, run.Local{}, jobs.Cmd{Argv: argv, Env: env})
			var failed *run.Error
			if errors.As(err, &failed) && failed.Err == nil {
				name := filepath.Base(argv[0]) + ": "
				err = errors.New(name + strings.TrimPrefix(finding.LastLine(failed.Stderr), name))
			}
			return string(out), err
		}}
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

func TestChecks(t *testing.T) {
	// The controller's clock is read when it is asked for it.
	clock := func(shift time.Duration) map[string]string {
		now := fmt.Sprintf(`export TZ=UTC; printf -v NOW '%%(%%s)T' -1; printf -v NOW '%%(%%FT%%T)T' $((NOW + %d)); `, int(shift.Seconds()))
		return map[string]string{"scontrol": now + config(t, "Configuration data as of @NOW@")}
	}
	account := func(name string) func(*Machine) {
		return func(m *Machine) { m.Profile.Slurm.Account = name }
	}
	for _, c := range []struct {
		name    string
		check   Check
		changes map[string]string
		with    func(*Machine)
		want    []string
	}{
		{name: "programs", check: Programs, want: []string{"ok Slurm 24.11.5", "warn CVE-2026-65107"}},
		{name: "none", check: Programs, changes: map[string]string{"sbatch": "", "squeue": "", "scancel": "", "scontrol": ""}, want: []string{"skip sbatch is not on PATH"}},
		{name: "some", check: Programs, changes: map[string]string{"squeue": "", "scancel": ""}, want: []string{"fail not on PATH: squeue, scancel"}},
		{name: "no srun", check: Programs, changes: map[string]string{"srun": "", "sbatch": "echo; echo '** welcome **'; echo slurm 26.05.5"}, want: []string{"warn Slurm 26.05.5, without srun"}},
		{name: "old", check: Programs, changes: map[string]string{"sbatch": "echo slurm 20.11.4"}, want: []string{"warn older than what berth was tried with", "warn CVE-2022-29500", "warn CVE-2023-41914", "warn CVE-2023-49933", "warn CVE-2025-43904", "warn CVE-2026-65107"}},
		{name: "broken", check: Programs, changes: map[string]string{"sbatch": "echo 'sbatch: error: no munge' >&2; exit 1"}, want: []string{"fail sbatch does not run: sbatch: error: no munge"}},
		{name: "lies", check: Programs, changes: map[string]string{"sbatch": "echo have a nice day"}, want: []string{"warn printed no version"}},

		{name: "up", check: Controller, want: []string{"ok slurmctld on ctl answers, cluster tb2411standard"}},
		{name: "down", check: Controller, changes: map[string]string{"scontrol": "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)' >&2; exit 1"}, want: []string{"fail slurmctld does not answer: scontrol: slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"}},
		{name: "says nothing", check: Controller, changes: map[string]string{"scontrol": "exit 0"}, want: []string{"fail printed no configuration"}},
		{name: "no Slurm", check: Controller, changes: map[string]string{"scontrol": ""}},
		{name: "down, others", check: Ending, changes: map[string]string{"scontrol": "exit 1"}, want: []string{"skip slurmctld could not be asked"}},

		{name: "clock", check: Clock, changes: clock(0), want: []string{"ok agree"}},
		{name: "clock behind", check: Clock, changes: clock(-40 * time.Second), want: []string{"warn from slurmctld's"}},
		{name: "clock ahead", check: Clock, changes: clock(10 * time.Minute), want: []string{"fail munge refuses"}},
		{name: "no clock", check: Clock, changes: map[string]string{"scontrol": config(t, "Configuration data as of never")}, want: []string{"skip no time"}},

		{name: "accounting", check: Accounting, want: []string{"ok sacct answers"}},
		{name: "no slurmdbd", check: Accounting, changes: map[string]string{"scontrol": config(t, "AccountingStorageType = (null)")}, want: []string{"warn forgotten 5m0s after its end"}},
		{name: "slurmdbd down", check: Accounting, changes: map[string]string{"sacct": "echo 'sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection' >&2; exit 1"}, want: []string{"warn sacct does not answer: sacct: error:"}},
		{name: "no sacct", check: Accounting, changes: map[string]string{"sacct": ""}, want: []string{"warn sacct is not on PATH"}},

		{name: "accounts", check: Account, want: []string{"ok lab, side (side: 40 jobs submitted at a time)"}},
		{name: "the profile's", check: Account, with: account("side"), want: []string{"ok lab, side"}},
		{name: "a wrong one", check: Account, with: account("phys"), want: []string{"fail the account phys is none of yours: lab, side"}},
		{name: "a wrong one, not enforced", check: Account, with: account("phys"), changes: map[string]string{"scontrol": config(t, "AccountingStorageEnforce = none")}, want: []string{"warn none of yours"}},
		{name: "none demanded", check: Account, changes: map[string]string{"sacctmgr": "exit 0", "scontrol": config(t, "AccountingStorageEnforce = none")}, want: []string{"ok none is demanded"}},
		{name: "no account", check: Account, changes: map[string]string{"sacctmgr": "exit 0"}, want: []string{"fail has no account on this cluster"}},

		{name: "partition", check: Partitions, want: []string{"ok main: up, limit 1-00:00:00, default time 01:00:00, 2 nodes, 500 MiB a CPU"}},
		{name: "partition of the profile", check: Partitions, with: func(m *Machine) { m.Profile.Slurm.Partition = "urgent" }, want: []string{"ok urgent: up"}},
		{name: "no such partition", check: Partitions, with: func(m *Machine) { m.Profile.Slurm.Partition = "gpu" }, want: []string{"fail gpu does not exist: there are main, urgent"}},

		{name: "ending", check: Ending, want: []string{"warn 5s between TERM and KILL is little", "ok proctrack/cgroup", "ok preempt/partition_prio, mode REQUEUE", "ok squeue knows them for 5m0s"}},
		{name: "unkind", check: Ending, changes: map[string]string{"scontrol": config(t, "KillWait = 30 sec", "ProctrackType = proctrack/linuxproc", "PreemptType = (null)")}, want: []string{"ok 30s", "warn proctrack/linuxproc: a process that detaches itself", "ok squeue"}},
		{name: "memory", check: Memory, want: []string{"ok is ended (cgroup/v1)"}},
		{name: "memory not counted", check: Memory, changes: map[string]string{"scontrol": config(t, "SelectTypeParameters = CR_CPU")}, want: []string{"warn does not hand out memory here (CR_CPU)"}},
		{name: "memory not held", check: Memory, changes: map[string]string{"scontrol": config(t, "ConstrainRAMSpace = no")}, want: []string{"warn does not hold it"}},
		{name: "tmp", check: Tmp, want: []string{"ok share the node's /tmp"}},
		{name: "own tmp", check: Tmp, changes: map[string]string{"scontrol": config(t, "JobContainerType = job_container/tmpfs")}, want: []string{"ok a /tmp of its own"}},
		{name: "limits", check: Limits, want: []string{"ok MaxJobCount 10000 on the whole cluster, MaxArraySize 1001"}},
		{name: "gpus", check: GPUs, want: []string{"ok no types"}},
		{name: "gpu types", check: GPUs, with: func(m *Machine) { m.Profile.GPUType = "v100" }, changes: map[string]string{"sinfo": "echo 'gpu:a100:4(S:0-1),shard:8'; echo 'gpu:h100:2'; echo '(null)'"}, want: []string{"fail v100 does not exist: there are a100, h100"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			parts, err := filepath.Abs("testdata/partitions-24.11.txt")
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("PARTS", parts)
			m := cluster(t, c.changes)
			if c.with != nil {
				c.with(&m)
			}
			expect(t, c.check.Run(t.Context(), New(t.Context(), m)), c.want)
		})
	}
}

// expect compares findings with "status words of why" lines.
func expect(t *testing.T, got []finding.Finding, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d findings, want %d: %+v", len(got), len(want), got)
	}
	for i, f := range got {
		status, why, _ := strings.Cut(want[i], " ")
		if string(f.Status) != status || !strings.Contains(f.Why, why) {
			t.Errorf("%s %q, want %s", f.Status, f.Why, want[i])
		}
		if f.Status == finding.Fail && f.Do == "" {
			t.Errorf("fails and says not what to do: %q", f.Why)
		}
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

// TestFlaws: the table is well-formed.
func TestFlaws(t *testing.T) { jobstest.Flaws(t, flaws, false) }
