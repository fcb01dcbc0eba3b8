package slurm_test

import (
	"strings"
	"testing"

	"berth/jobs"
	"berth/slurm"
)

// Elements are one array: one call, with a log for each, and without the singleton that
// would let them run one by one.
func TestArray(t *testing.T) {
	l := launch()
	l.Elements, l.AtOnce = 40, 8
	script, err := slurm.New(nil, slurm.Config{}).Render(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"#SBATCH --array=1-40%8\n", "#SBATCH --output=/home/alice/b/0001/scheduler-%a.log\n"} {
		if !strings.Contains(script, want) {
			t.Errorf("no %q in:\n%s", want, script)
		}
	}
	if strings.Contains(script, "singleton") || strings.Contains(script, "dependency") {
		t.Errorf("a dependency in:\n%s", script)
	}
	l.AtOnce = 40
	if script, err = slurm.New(nil, slurm.Config{}).Render(l); err != nil || !strings.Contains(script, "#SBATCH --array=1-40\n") {
		t.Errorf("%v:\n%s", err, script)
	}
	l.Profile.Forbid = []string{"array"}
	if _, err := slurm.New(nil, slurm.Config{}).Render(l); jobs.KindOf(err) != jobs.KindConfig {
		t.Error(err)
	}
	s := on(t, step{argv: "sbatch --parsable /x/script.sh", stdout: "70\n"})
	if got, err := scheduler(s).Submit(t.Context(), l, "/x/script.sh"); err != nil || got.NativeID != "70" || got.Elements != 40 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Elements that run have ids of their own, and all that wait have one row. They are
// known by their name, and the accounting is not asked about them.
func TestArrayIsKnownByItsName(t *testing.T) {
	const name = "berth-sweep-0123-1"
	waits := "70|PENDING|0:0|N/A||" + name + "|Resources|\n"
	runs := "71|COMPLETED|0:0|2026-11-21T11:00:00|c1|" + name + "|None|\n72|RUNNING|0:0|2026-11-21T11:00:00|c2|" + name + "|None|\n"
	other := "73|RUNNING|0:0|N/A|c1|berth-other-0|None|\n"
	array := h("70", name)
	array.Elements = 3
	s := on(t,
		step{argv: squeue, stdout: other + waits}, step{argv: squeue, stdout: other + waits + runs}, step{argv: squeue, stdout: other},
		step{argv: squeue, stdout: other + waits + runs}, step{argv: "scancel 70 72"}, step{argv: squeue, stdout: other})
	sched := scheduler(s)
	for i, want := range []jobs.State{jobs.StatePending, jobs.StateRunning, ""} {
		got, err := sched.Status(t.Context(), []jobs.Handle{array})
		if err != nil || got[name].State != want || got[name].Elements != []int{1, 2, 0}[i] {
			t.Errorf("%+v, want %q: %v", got[name], want, err)
		}
	}
	for range 2 {
		if err := sched.Cancel(t.Context(), []jobs.Handle{array}); err != nil {
			t.Error(err)
		}
	}
}

func TestRoom(t *testing.T) {
	const assoc = "sacctmgr -nP show assoc user=alice format=Account,Partition,MaxJobs,MaxSubmitJobs,QOS"
	limits := dbd + "MaxArraySize            = 1001\n"
	queue := "7|RUNNING|0:0|N/A|c1|a|None|\n8|COMPLETED|0:0|N/A|c1|b|None|\n"
	for _, c := range []struct {
		name  string
		o     jobs.SlurmOptions
		steps []step
		want  jobs.Room
	}{
		{"no accounting", jobs.SlurmOptions{}, []step{{argv: config, stdout: nodbd + "MaxArraySize = 50\n"}}, jobs.Room{Elements: 49}},
		{"no limit", jobs.SlurmOptions{}, []step{{argv: config, stdout: limits}, {argv: assoc, stdout: "lab||||normal\n"}}, jobs.Room{Elements: 1000}},
		{"a limit", jobs.SlurmOptions{}, []step{{argv: config, stdout: limits}, {argv: assoc, stdout: "lab||10|40|normal\nlab|gpu||5|normal\n"}, {argv: squeue, stdout: queue}},
			jobs.Room{Elements: 1000, Jobs: 39, Why: "MaxSubmitJobs of account lab is 40"}},
		{"of another account", jobs.SlurmOptions{Account: "side"}, []step{{argv: config, stdout: limits}, {argv: assoc, stdout: "lab|||1|normal\nside||||normal\n"}}, jobs.Room{Elements: 1000}},
		{"none left", jobs.SlurmOptions{}, []step{{argv: config, stdout: limits}, {argv: assoc, stdout: "lab|||1|normal\n"}, {argv: squeue, stdout: queue}},
			jobs.Room{Elements: 1000, Why: "MaxSubmitJobs of account lab is 1"}},
	} {
		if got, err := scheduler(on(t, c.steps...)).Room(t.Context(), c.o, "alice"); err != nil || got != c.want {
			t.Errorf("%s: %+v, want %+v: %v", c.name, got, c.want, err)
		}
	}
}
