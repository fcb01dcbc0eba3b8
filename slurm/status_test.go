package slurm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
		step{argv: "id -nu 1000", stdout: "alice\n"},
		step{argv: squeue},
		step{argv: sacctDay + "-j 7" + acctWords},
	)
	sched := scheduler(s)
	got, err := sched.Status(t.Context(), []jobs.Handle{h("7", "berth-a-0"), h("8", "berth-b-0"), h("9", "berth-c-0"), h("10", "berth-d-0"), h("11", "berth-e-0"), h("; rm -rf /", "berth-f-0")})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]jobs.Status{
		"berth-a-0": {State: jobs.StateRunning, NativeState: "RUNNING", Explanation: "runs", Node: "c1", Start: time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)},
		"berth-b-0": {State: jobs.StatePending, NativeState: "PENDING", Reason: "Resources", Explanation: "waits: the nodes it needs are in use, and it is the next", Hint: "a job that asks for less time, memory or CPUs may fit sooner: berth explain tries that"},
		"berth-d-0": {State: jobs.StateCancelled, NativeState: "CANCELLED", Reason: "by alice", Explanation: "was cancelled", By: "alice", Signal: 15, Start: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)},
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

// slurmctld has come back without its state, and so the accounting calls open
// jobs cancelled, by no one; a dependency that can never be met ends a job so,
// too, and says why.
func TestStatusClosed(t *testing.T) {
	s := on(t, step{argv: squeue}, step{argv: config, stdout: dbd},
		step{argv: sacctDay + "-j 7,8" + acctWords, stdout: "7|CANCELLED|0:0|Unknown|None assigned|berth-a-0|BeginTime\n8|CANCELLED|0:0|Unknown|None assigned|berth-b-0|DependencyNeverSatisfied\n"})
	got, err := scheduler(s).Status(t.Context(), []jobs.Handle{h("7", "berth-a-0"), h("8", "berth-b-0")})
	if _, known := got["berth-a-0"]; err != nil || known || got["berth-b-0"].State != jobs.StateCancelled {
		t.Errorf("%+v, %v", got, err)
	}
}

// The queue says that a job was cancelled, and the accounting by whom; that it
// does not answer changes nothing.
func TestStatusAsksWhoCancelled(t *testing.T) {
	queue := "7|CANCELLED|0:0|N/A|c1|berth-a-0|None|\n"
	s := on(t,
		step{argv: squeue, stdout: queue}, step{argv: config, stdout: dbd},
		step{argv: sacctDay + "-j 7" + acctWords, stdout: "7|CANCELLED by 0|0:15|2026-11-21T10:00:00|c1|berth-a-0|None\n"}, step{argv: "id -nu 0", stdout: "root\n"},
		step{argv: squeue, stdout: queue}, step{argv: sacctDay + "-j 7" + acctWords, stdout: "7|RUNNING|0:0|2026-11-21T10:00:00|c1|berth-a-0|None\n"},
		step{argv: squeue, stdout: queue}, step{argv: sacctDay + "-j 7" + acctWords, code: 1},
	)
	sched := scheduler(s)
	for i, by := range []string{"root", "", ""} {
		got, err := sched.Status(t.Context(), []jobs.Handle{h("7", "berth-a-0")})
		if st := got["berth-a-0"]; err != nil || st.State != jobs.StateCancelled || st.By != by {
			t.Errorf("%d: %+v, %v", i, st, err)
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

// TestFindRefused: a request that no node can satisfy is refused, and yet stays in
// squeue for a while; it is not the job.
func TestFindRefused(t *testing.T) {
	s := on(t,
		step{argv: squeue + " -n berth-a-0", stdout: "3|FAILED|0:0|2026-11-21T10:00:00||berth-a-0|BadConstraints|\n"},
		step{argv: config, stdout: nodbd})
	if got, err := scheduler(s).Find(t.Context(), []string{"berth-a-0"}); err != nil || len(got) != 0 {
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

func TestMost(t *testing.T) {
	const (
		parts = "scontrol show partition -o"
		show  = "scontrol show node -o"
		qos   = "sacctmgr -nP show qos format=Name,MaxWall"
		lines = "PartitionName=main Default=YES QoS=N/A MaxTime=1-00:00:00 MaxMemPerNode=UNLIMITED\nPartitionName=fat Default=NO QoS=fatq MaxTime=UNLIMITED MaxMemPerNode=100000\nPartitionName=cpu Default=NO QoS=N/A MaxTime=30:00 MaxMemPerCPU=1000\n"
		nodes = "NodeName=m1 CPUTot=4 RealMemory=8000 Partitions=main\nNodeName=m2 CPUTot=8 RealMemory=16000 Partitions=main,all\nNodeName=f CPUTot=64 RealMemory=500000 Partitions=fat\n" +
			"NodeName=c CPUAlloc=0 CPUEfctv=32 CPUTot=36 RealMemory=64000 Partitions=cpu Reason=RealMemory=1 Partitions=main [root@2026-11-21T08:44:07]\nNodeName=n RealMemory=1000 MemSpecLimit=2000\n"
		walls = "normal|\nshort|00:10:00\nfatq|2-00:00:00\n"
	)
	first := []step{{argv: parts, stdout: lines}, {argv: show, stdout: nodes}}
	withQOS := append(first[:2:2], step{argv: config, stdout: dbd}, step{argv: qos, stdout: walls})
	for _, c := range []struct {
		o     jobs.SlurmOptions
		steps []step
		want  jobs.Most
	}{
		{jobs.SlurmOptions{}, first, jobs.Most{Memory: 16000 * jobs.MiB, MemoryWhy: "the largest node of partition main has no more", Time: 24 * time.Hour, TimeWhy: "MaxTime of partition main"}},
		{jobs.SlurmOptions{QOS: "short"}, withQOS, jobs.Most{Memory: 16000 * jobs.MiB, MemoryWhy: "the largest node of partition main has no more", Time: 10 * time.Minute, TimeWhy: "MaxWall of QOS short"}},
		{jobs.SlurmOptions{Partition: "fat"}, withQOS, jobs.Most{Memory: 100000 * jobs.MiB, MemoryWhy: "MaxMemPerNode of partition fat", Time: 48 * time.Hour, TimeWhy: "MaxWall of QOS fatq"}},
		{jobs.SlurmOptions{Partition: "cpu"}, first, jobs.Most{Memory: 32000 * jobs.MiB, MemoryWhy: "MaxMemPerCPU of partition cpu", Time: 30 * time.Minute, TimeWhy: "MaxTime of partition cpu"}},
		{jobs.SlurmOptions{Partition: "cpu,fat"}, first, jobs.Most{Memory: 100000 * jobs.MiB, MemoryWhy: "MaxMemPerNode of partition fat"}},
		{jobs.SlurmOptions{Partition: "none"}, first[:1], jobs.Most{}},
	} {
		got, err := scheduler(on(t, c.steps...)).Most(t.Context(), c.o)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%+v: %v %s", c.o, err, diff)
		}
	}
}

// TestPartitions: what was asked for another reason in the last week is known, and nothing
// is asked for the names alone.
func TestPartitions(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	process := func(steps ...step) *slurm.Scheduler {
		return slurm.New(on(t, steps...), slurm.Config{Now: func() time.Time { return now }, Sleep: func(context.Context, time.Duration) error { return nil },
			Environ: []string{"PATH=/bin"}, Shared: func() (string, error) { return dir, nil }})
	}
	if got := process().Partitions(); got != nil {
		t.Error(got)
	}
	asked := process(step{argv: "scontrol show partition -o", stdout: "PartitionName=main Default=YES\nPartitionName=fat\n"}, step{argv: "scontrol show node -o"})
	if _, err := asked.Most(t.Context(), jobs.SlurmOptions{Partition: "main"}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute) // the file is of the machine's clock
	for _, want := range [][]string{{"main", "fat"}, {"main", "fat"}, nil} {
		if got := process().Partitions(); !slices.Equal(got, want) {
			t.Error(got, want)
		}
		now = now.Add(4 * 24 * time.Hour)
	}
}

// TestMostOfNodes reads what real Slurms say of nodes of which some keep memory for
// themselves: that is no job's. A single node's job could have 8000 or 6500 MiB.
func TestMostOfNodes(t *testing.T) {
	files, err := filepath.Glob("testdata/nodes-*.txt")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all := string(b)
		_, second, _ := strings.Cut(all, "\n")
		for text, want := range map[string]jobs.Bytes{all: 8000 * jobs.MiB, second: 6500 * jobs.MiB} {
			steps := []step{{argv: "scontrol show partition -o", stdout: "PartitionName=main Default=YES MaxTime=UNLIMITED QoS=N/A\n"}, {argv: "scontrol show node -o", stdout: text}}
			got, err := scheduler(on(t, steps...)).Most(t.Context(), jobs.SlurmOptions{})
			if err != nil || got.Memory != want || got.MemoryWhy != "the largest node of partition main has no more" {
				t.Errorf("%s: %+v, want %s, %v", file, got, want, err)
			}
		}
	}
}

func TestForecast(t *testing.T) {
	const (
		parts = "scontrol show partition -o"
		lines = "PartitionName=main Default=YES State=UP MaxTime=1-00:00:00\nPartitionName=short Default=NO State=UP AllowGroups=ALL MaxTime=01:00:00\nPartitionName=fat State=UP MaxTime=UNLIMITED AllowAccounts=lab\n" +
			"PartitionName=secret State=UP MaxTime=UNLIMITED AllowAccounts=boss\nPartitionName=down State=DOWN MaxTime=UNLIMITED\n"
		try   = "sbatch --test-only --job-name=berth-forecast "
		start = "sbatch: Job 12 to start at 2026-11-21T11:44:00 using 1 processors on nodes c1 in partition main\n"
	)
	waits := jobs.Status{NativeState: "PENDING", Reason: "Resources"}
	r, o := jobs.Resources{Time: 4 * time.Hour, Memory: jobs.GiB}, jobs.SlurmOptions{Account: "lab"}
	s := on(t, step{argv: parts, stdout: lines}, step{argv: try + "/s.sh", stderr: start},
		step{argv: try + "--time=02:00:00 /s.sh", stderr: start}, step{argv: try + "--mem=512M /s.sh", stderr: "allocation failure: Requested node configuration is not available\n", code: 1},
		step{argv: try + "--partition=fat /s.sh", stderr: start})
	got, err := scheduler(s).Forecast(t.Context(), waits, "/s.sh", r, o)
	at := time.Date(2026, 11, 21, 11, 44, 0, 0, time.UTC)
	want := []jobs.Forecast{{What: "as it is", Start: at}, {What: "with half the time, 2h0m0s", Start: at}, {What: "with half the memory, 512MiB", Trouble: "Requested node configuration is not available"}, {What: "in partition fat", Start: at}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for _, st := range []jobs.Status{{NativeState: "RUNNING"}, {NativeState: "PENDING", Reason: "JobHeldUser"}, {NativeState: "PENDING", Reason: "Dependency"}, {NativeState: "REQUEUE_HOLD"}, {NativeState: "PENDING", Reason: "launch failed requeued held"}} {
		if got, err := scheduler(on(t)).Forecast(t.Context(), st, "/s.sh", r, o); got != nil || err != nil {
			t.Errorf("%+v: %v, %v", st, got, err)
		}
	}
	down := on(t, step{argv: parts, stdout: lines}, step{argv: try + "/s.sh", stderr: "sbatch: error: Unable to contact slurm controller (connect failure)\n", code: 1})
	if _, err := scheduler(down).Forecast(t.Context(), waits, "/s.sh", r, o); jobs.KindOf(err) != jobs.KindInfra {
		t.Error(err)
	}
}
