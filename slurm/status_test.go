package slurm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/jobs"
	"berth/slurm"
)

func h(id, name string) jobs.Handle {
	return jobs.Handle{Version: 1, Scheduler: "slurm", NativeID: id, Name: name, Opaque: fmt.Appendf(nil, `{"since":%d}`, now.Add(-time.Hour).Unix())}
}

const (
	sacctDay  = "sacct -X -P -n -S 2026-11-14T12:00:00 "
	acctWords = " -o JobIDRaw,State,ExitCode,Start,NodeList,JobName,Reason"
)

func TestStatusAsksOnce(t *testing.T) {
	s := on(t,
		step{argv: squeue, stdout: "CLUSTER: two\n7|RUNNING|0:0|2026-11-21T11:00:00|c1|berth-a-0|None|\n8|PENDING|0:0|N/A||berth-b-0|Resources|\n9|RUNNING|0:0|N/A|c1|somebody-else|None|\n"},
		step{argv: config, stdout: dbd},
		step{argv: sacctDay + "-j 9,10,11" + acctWords, stdout: "10|CANCELLED by 1000|0:15|2026-11-21T10:00:00|None assigned|berth-d-0|None\n11|COMPLETED|0:0|Unknown||berth-other-0|None\n"},
		step{argv: squeue},
		step{argv: sacctDay + "-j 7" + acctWords},
	)
	sched := scheduler(s)
	got, err := sched.Status(t.Context(), []jobs.Handle{h("7", "berth-a-0"), h("8", "berth-b-0"), h("9", "berth-c-0"), h("10", "berth-d-0"), h("11", "berth-e-0"), h("; rm -rf /", "berth-f-0")})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]jobs.Status{
		"berth-a-0": {State: jobs.StateRunning, Word: "RUNNING", Node: "c1", Start: time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)},
		"berth-b-0": {State: jobs.StatePending, Word: "PENDING", Reason: "Resources"},
		"berth-d-0": {State: jobs.StateCancelled, Word: "CANCELLED", Reason: "by 1000", Signal: 15, Start: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The configuration is not asked for again.
	if got, err := sched.Status(t.Context(), []jobs.Handle{h("7", "berth-a-0")}); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	for _, env := range s.envs {
		if !strings.Contains(strings.Join(env, "\n"), "TZ=UTC") {
			t.Errorf("no TZ in %v", env)
		}
	}
}

func TestStatusOfAThousandIsOneQuestion(t *testing.T) {
	var handles []jobs.Handle
	var out, ids strings.Builder
	for i := 1; i <= 2000; i++ {
		name := fmt.Sprintf("berth-x-%d", i)
		handles = append(handles, h(fmt.Sprint(i), name))
		if i <= 1000 {
			fmt.Fprintf(&out, "%d|RUNNING|0:0|N/A|c1|%s|None|\n", i, name)
		} else {
			fmt.Fprintf(&ids, ",%d", i)
		}
	}
	s := on(t, step{argv: squeue, stdout: out.String()}, step{argv: config, stdout: dbd}, step{argv: sacctDay + "-j " + ids.String()[1:] + acctWords})
	if got, err := scheduler(s).Status(t.Context(), handles); err != nil || len(got) != 1000 {
		t.Error(len(got), err)
	}
}

func TestStatusWithoutAccounting(t *testing.T) {
	s := on(t, step{argv: squeue}, step{argv: config, stdout: nodbd})
	if got, err := scheduler(s).Status(t.Context(), []jobs.Handle{h("7", "berth-a-0")}); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
}

func TestStatusOfAnotherCluster(t *testing.T) {
	a := h("7", "berth-a-0")
	a.Cluster = "two"
	s := on(t, step{argv: squeue + " -M two"}, step{argv: config, stdout: dbd}, step{argv: sacctDay + "-j 7" + acctWords + " -M two"})
	if got, err := scheduler(s).Status(t.Context(), []jobs.Handle{a}); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
}

func TestAFailedQueryIsAnError(t *testing.T) {
	down := "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
	for name, steps := range map[string][]step{
		"squeue fails":       {{argv: squeue, stderr: down, code: 1}},
		"squeue hangs":       {{argv: squeue, hang: true}},
		"squeue is missing":  {{argv: squeue, start: missingProgram("squeue")}},
		"settings fail":      {{argv: squeue}, {argv: config, stderr: down, code: 1}},
		"accounting is down": {{argv: squeue}, {argv: config, stdout: dbd}, {argv: sacctDay + "-j 7" + acctWords, stderr: "sacct: error: Problem talking to the database: Connection refused\n", code: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := scheduler(on(t, steps...)).Status(t.Context(), []jobs.Handle{h("7", "berth-a-0")})
			if err == nil || len(got) != 0 || jobs.KindOf(err) != jobs.KindInfra {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestFind(t *testing.T) {
	s := on(t,
		step{argv: squeue + " -n berth-a-0,berth-b-0,berth-c-0", stdout: "3|COMPLETED|0:0|N/A|c1|berth-a-0|None|\n5|RUNNING|0:0|N/A|c1|berth-a-0|None|\n6|PENDING|0:0|N/A||berth-a-0|Dependency|\n"},
		step{argv: config, stdout: dbd},
		step{argv: sacctDay + "--name=berth-b-0,berth-c-0" + acctWords, stdout: "4|FAILED|1:0|2026-11-21T10:00:00|c1|berth-b-0|None\n6|FAILED|1:0|None|None assigned|berth-c-0|None\n"})
	got, err := scheduler(s).Find(t.Context(), []string{"berth-a-0", "berth-b-0", "berth-c-0"})
	if err != nil || len(got) != 2 || got["berth-a-0"].NativeID != "5" || got["berth-b-0"].NativeID != "4" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCancel(t *testing.T) {
	queue := "7|RUNNING|0:0|N/A|c1|berth-a-0|None|\n8|COMPLETED|0:0|N/A|c1|berth-b-0|None|\n9|PENDING|0:0|N/A||not-ours|None|\n10|WHATEVER|0:0|N/A||berth-d-0|None|\n"
	ask := []jobs.Handle{h("7", "berth-a-0"), h("8", "berth-b-0"), h("9", "berth-c-0"), h("10", "berth-d-0"), h("11", "berth-e-0")}
	for name, c := range map[string]struct {
		scancel step
		kind    jobs.Kind
		ok      bool
	}{
		"fine":            {step{}, 0, true},
		"ended meanwhile": {step{stderr: "scancel: error: Kill job error on job id 7: Invalid job id specified\n", code: 1}, 0, true},
		"completing":      {step{stderr: "scancel: error: Kill job error on job id 7: Job/step already completing or completed\n", code: 1}, 0, true},
		"denied":          {step{stderr: "scancel: error: Kill job error on job id 7: Access/permission denied\n", code: 1}, jobs.KindInfra, false},
		"down":            {step{stderr: "scancel: error: slurm_kill_job2() failed Unable to contact slurm controller (connect failure)\n", code: 1}, jobs.KindInfra, false},
		"silent failure":  {step{code: 1}, jobs.KindInfra, false},
		"hangs":           {step{hang: true}, jobs.KindInfra, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.scancel.argv = "scancel 10 7"
			err := scheduler(on(t, step{argv: squeue, stdout: queue}, c.scancel)).Cancel(t.Context(), ask)
			if (err == nil) != c.ok || jobs.KindOf(err) != c.kind {
				t.Error(err)
			}
		})
	}
	if err := scheduler(on(t, step{argv: squeue})).Cancel(t.Context(), ask); err != nil {
		t.Errorf("nothing left to cancel: %v", err)
	}
}

func TestCheck(t *testing.T) {
	version := step{argv: "sbatch --version", stdout: "*** Welcome to release 2.0. ***\nslurm-wlm 24.11.5\n"}
	for name, c := range map[string]struct {
		steps []step
		want  jobs.Health
	}{
		"up":         {[]step{version, {argv: "scontrol ping", stdout: "Slurmctld(primary) at ctl is UP\n"}}, jobs.Healthy},
		"backup up":  {[]step{version, {argv: "scontrol ping", stdout: "Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n"}}, jobs.Healthy},
		"down":       {[]step{version, {argv: "scontrol ping", stdout: "Slurmctld(primary) at ctl is DOWN\n"}}, jobs.Unhealthy},
		"ping fails": {[]step{version, {argv: "scontrol ping", stdout: "Slurmctld(primary) at ctl is DOWN\n", code: 1}}, jobs.Unhealthy},
		"missing":    {[]step{{argv: "sbatch --version", start: missingProgram("sbatch")}}, jobs.Undetected},
		"missing 2":  {[]step{{argv: "sbatch --version", code: 127}}, jobs.Undetected},
		"broken":     {[]step{{argv: "sbatch --version", stderr: "sbatch: error while loading shared libraries", code: 1}}, jobs.Unhealthy},
	} {
		t.Run(name, func(t *testing.T) {
			got := scheduler(on(t, c.steps...)).Check(t.Context())
			if got.Health != c.want || got.Reason == "" || (c.want != jobs.Undetected && name != "broken" && got.Version != "24.11.5") {
				t.Errorf("%+v", got)
			}
			if (got.Hint == "") != (c.want == jobs.Healthy) {
				t.Errorf("hint %q", got.Hint)
			}
		})
	}
}

func TestKillWait(t *testing.T) {
	if d, err := scheduler(on(t, step{argv: config, stdout: dbd})).KillWait(t.Context()); err != nil || d != 30*time.Second {
		t.Error(d, err)
	}
	if _, err := scheduler(on(t, step{argv: config, stdout: nodbd})).KillWait(t.Context()); err == nil {
		t.Error("no KillWait and no error")
	}
}

var _ jobs.Scheduler = (*slurm.Scheduler)(nil)
