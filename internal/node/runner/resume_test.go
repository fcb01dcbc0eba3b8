package runner

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
)

// goesOn gives a job on a repository a time limit and what it needs to go on.
func goesOn(t *testing.T, dir string, p jobs.Resume, change func(*store.New)) func(*store.New) {
	return onRepo(t, dir, func(n *store.New) {
		n.Spec.Retry, n.Spec.Resources.Time = &jobs.Retry{Attempts: 3, Infra: 2}, time.Hour
		if p.Before == 0 {
			p.Before = 15 * time.Minute
		}
		if p.Attempts == 0 {
			p.Attempts = 9
		}
		n.Spec.Resume = &p
		if change != nil {
			change(n)
		}
	})
}

// next begins the attempt that is to follow.
func (j *job) next(word *jobs.Status) *job {
	j.t.Helper()
	rec := reread(j.t, j.rec)
	step := jobs.Next(rec, word, time.Now())
	if step.Do == jobs.DoDecide {
		if _, err := store.SetDecision(rec.Current().Dir, step.Decision); err != nil {
			j.t.Fatal(err)
		}
		rec = reread(j.t, rec)
		step = jobs.Next(rec, nil, time.Now())
	}
	if step.Do != jobs.DoBegin {
		j.t.Fatalf("nothing follows: %+v", step)
	}
	id, err := ids.New()
	if err != nil {
		j.t.Fatal(err)
	}
	dir, won, err := store.Begin(rec.Dir, jobs.AttemptInfo{Version: 1, ID: id, Number: rec.Current().N + 1, Name: jobs.JobName("a-test", id), Created: time.Now().UTC(), Change: step.Decision.Change}, "#!/bin/sh\n")
	if err != nil || !won {
		j.t.Fatal(won, err)
	}
	n := *j
	n.rec, n.dir, n.cmd, n.stderr, n.done = reread(j.t, rec), dir, nil, nil, nil
	return &n
}

// TestResume: what a task had done when its time was up is there when it goes
// on, and one branch has all of it.
func TestResume(t *testing.T) {
	t.Parallel()
	dir := repo(t)
	j := newJob(t, `echo $BERTH_ATTEMPT_NUMBER-$BERTH_RESUMED >>seen; [ $BERTH_ATTEMPT_NUMBER = 1 ] || exit 0; echo ready; trap 'echo saved >saved; exit 0' TERM; while :; do sleep 0.05; done`,
		goesOn(t, dir, jobs.Resume{Before: time.Hour - slow}, nil))
	j.periods.Grace = patient
	code, rec := j.run()
	if code != jobs.CodeTimeout || rec.State != jobs.StateTimeout || rec.Class != jobs.ClassTime || rec.Result == nil || rec.Result.Taken {
		t.Fatalf("exit %d, %+v\n%s", code, rec, j.read(store.FileRuntime))
	}
	a := reread(t, j.rec).Current()
	if a.Checkpoint == nil || !a.Checkpoint.Stopped || a.Checkpoint.Point.Commit != rec.Result.Commit || a.Checkpoint.Ran < slow || !a.TakesUp() {
		t.Fatalf("%+v, %+v", a.Checkpoint, a.Decision)
	}
	second := j.next(nil)
	if code, rec = second.run(); code != 0 || rec.State != jobs.StateCompleted {
		t.Fatalf("exit %d, %+v\n%s", code, rec, second.read(store.FileRuntime))
	}
	if got := git(t, dir, "show", rec.Result.Branch+":seen"); got != "1-\n2-1" {
		t.Errorf("seen holds %q", got)
	}
	if got := git(t, dir, "show", rec.Result.Branch+":saved"); got != "saved" {
		t.Errorf("saved holds %q", got)
	}
	if got := git(t, dir, "log", "--format=%s", rec.Result.Branch); got != "a test\nbegin" {
		t.Errorf("the branch has %q", got)
	}
}

// TestResumeFollows: the next attempt of a task whose time was up is begun once, by
// its runner, when the end of this one is recorded.
func TestResumeFollows(t *testing.T) {
	t.Parallel()
	j := newJob(t, `echo ready; while :; do sleep 0.05; done`, goesOn(t, repo(t), jobs.Resume{Before: time.Hour - slow}, func(n *store.New) { n.Spec.Scheduler = jobs.SchedulerSlurm }))
	j.follow = filepath.Join(j.tmp, "follow")
	said := filepath.Join(j.tmp, "said")
	if err := writeProgram(j.follow, "#!/bin/sh\necho \"$*\" $(test -s "+j.dir+"/exit.json && echo ended) >>"+said+"\n"); err != nil {
		t.Fatal(err)
	}
	code, rec := j.run()
	b, err := os.ReadFile(said)
	if err != nil || code != jobs.CodeTimeout || string(b) != "follow "+j.rec.Spec.ID+" ended\n" {
		t.Fatalf("exit %d, %+v, %v, asked for: %s\n%s", code, rec, err, b, j.read(store.FileRuntime))
	}
}

// TestCheckpoints: a runner that is killed leaves what its task had done at the
// last checkpoint, which a hook has prepared.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	dir := repo(t)
	j := newJob(t, `echo $BERTH_ATTEMPT_NUMBER >>seen; [ $BERTH_ATTEMPT_NUMBER = 1 ] || exit 0; echo ready; while :; do sleep 0.05; done`,
		goesOn(t, dir, jobs.Resume{Every: 20 * time.Millisecond, Hook: jobs.Command{Shell: `echo $BERTH_HOOK >hooked.new; mv hooked.new hooked`}}, nil)).start()
	j.says("ready")
	eventually(t, "a fourth checkpoint", func() bool {
		a, err := store.LoadAttempt(j.dir)
		return err == nil && a.Checkpoint != nil && a.Checkpoint.Number >= 4
	})
	j.signal(syscall.SIGKILL)
	<-j.done
	if left, _ := filepath.Glob(filepath.Join(j.dir, checkpointBundles)); len(left) == 0 || len(left) > 4 {
		t.Errorf("checkpoints: %q", left)
	}
	if _, err := store.SetVerdict(j.dir, jobs.Verdict{Version: 1, State: jobs.StateLost, Class: jobs.ClassInfra, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	second := j.next(nil)
	code, rec := second.run()
	if code != 0 || rec.State != jobs.StateCompleted {
		t.Fatalf("exit %d, %+v\n%s", code, rec, second.read(store.FileRuntime))
	}
	if got := git(t, dir, "show", rec.Result.Branch+":seen"); got != "1\n2" {
		t.Errorf("seen holds %q", got)
	}
	if got := git(t, dir, "show", rec.Result.Branch+":hooked"); got != "checkpoint" {
		t.Errorf("the hook was told %q", got)
	}
}

// slowSlurm has the job's Slurm leave minutes between TERM and KILL, and
// returns what tells whether it was asked.
func (j *job) slowSlurm() (asked func() bool) {
	j.t.Helper()
	bin := j.t.TempDir()
	// It tells some time after its end, so that the runner has read it.
	program := "#!/bin/sh\necho 'KillWait = 300 sec'\n(sleep 3; : >\"${0%/*}/asked\") </dev/null >/dev/null 2>&1 &\n"
	if err := writeProgram(filepath.Join(bin, "scontrol"), program); err != nil {
		j.t.Fatal(err)
	}
	j.env = append(j.env, "PATH="+bin+":"+os.Getenv("PATH"))
	return func() bool {
		_, err := os.Stat(filepath.Join(bin, "asked"))
		return err == nil
	}
}

// TestPreempted: when the scheduler ends a task, the hook runs and what there is
// is kept, whoever decides later what follows.
func TestPreempted(t *testing.T) {
	t.Parallel()
	dir := repo(t)
	j := newJob(t, `echo $BERTH_ATTEMPT_NUMBER >>seen; [ $BERTH_ATTEMPT_NUMBER = 1 ] || exit 0; echo ready; while :; do sleep 0.05; done`,
		goesOn(t, dir, jobs.Resume{Hook: jobs.Command{Argv: []string{"sh", "-c", `echo $BERTH_HOOK >hooked`}}}, func(n *store.New) { n.Spec.Scheduler = jobs.SchedulerSlurm })).start()
	j.says("ready")
	j.signal(syscall.SIGUSR2) // the job's end is not known here, so it comes as it is meant
	code, rec := j.wait()
	if code != jobs.CodeTimeout || rec.Class != jobs.ClassTime {
		t.Fatalf("exit %d, %+v\n%s", code, rec, j.read(store.FileRuntime))
	}
	second := j.next(nil)
	if code, rec = second.run(); code != 0 {
		t.Fatalf("exit %d, %+v\n%s", code, rec, second.read(store.FileRuntime))
	}
	if got := git(t, dir, "show", rec.Result.Branch+":seen"); got != "1\n2" {
		t.Errorf("seen holds %q", got)
	}

	j = newJob(t, `echo $BERTH_ATTEMPT_NUMBER >>seen; [ $BERTH_ATTEMPT_NUMBER = 1 ] || exit 0; echo ready; while :; do sleep 0.05; done`,
		goesOn(t, repo(t), jobs.Resume{Hook: jobs.Command{Shell: `echo $BERTH_HOOK >hooked`}}, func(n *store.New) { n.Spec.Scheduler = jobs.SchedulerSlurm }))
	asked := j.slowSlurm()
	j.start()
	j.says("ready")
	eventually(t, "the time before KILL is known", asked)
	j.signal(syscall.SIGTERM)
	if code, rec = j.wait(); code != jobs.CodeInterrupted || rec.Class != jobs.ClassEnded {
		t.Fatalf("exit %d, %+v\n%s", code, rec, j.read(store.FileRuntime))
	}
	if a := reread(t, j.rec).Current(); a.Decision != nil || a.Checkpoint == nil || !a.Checkpoint.Stopped || a.Checkpoint.Point.Commit == "" {
		t.Fatalf("%+v, %+v\n%s", a.Decision, a.Checkpoint, j.read(store.FileRuntime))
	}
	second = j.next(&jobs.Status{State: jobs.StateError, Class: jobs.ClassPreempted, NativeState: "PREEMPTED"})
	if code, rec = second.run(); code != 0 || rec.Result == nil || rec.Result.Files != 2 {
		t.Fatalf("exit %d, %+v\n%s", code, rec, second.read(store.FileRuntime))
	}
}

// TestCancelledInstead: who cancels a job wants no point from which it goes on.
func TestCancelledInstead(t *testing.T) {
	t.Parallel()
	j := newJob(t, `echo ready; while :; do sleep 0.05; done`, goesOn(t, repo(t), jobs.Resume{Hook: jobs.Command{Shell: "touch hooked"}}, nil)).start()
	j.says("ready")
	j.cancel()
	j.signal(syscall.SIGTERM)
	code, rec := j.wait()
	if a := reread(t, j.rec).Current(); code != jobs.CodeInterrupted || a.Checkpoint != nil || a.Decision == nil || a.Decision.Verb != jobs.VerbAccept {
		t.Fatalf("exit %d, %+v, %+v", code, rec, a)
	}
	if strings.Contains(j.read(store.FileEvents), `"hook"`) {
		t.Error("the hook has run")
	}
	if _, err := os.Stat(filepath.Join(j.dir, "checkpoint.json")); err == nil {
		t.Error("there is a checkpoint")
	}
}

// TestEarlySignal: Slurm's signal may come a minute early; the task works on
// until it is time.
func TestEarlySignal(t *testing.T) {
	t.Parallel()
	j := newJob(t, `echo ready; until [ -e ../go ]; do sleep 0.05; done`, goesOn(t, repo(t), jobs.Resume{}, func(n *store.New) { n.Spec.Scheduler = jobs.SchedulerSlurm }))
	j.env = []string{"SLURM_JOB_ID=17", "SLURM_JOB_END_TIME=" + strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)}
	j.start()
	j.says("ready")
	j.signal(syscall.SIGUSR2)
	eventually(t, "the signal is taken note of", func() bool { return strings.Contains(j.read(store.FileEvents), `"time_signal"`) })
	if err := os.WriteFile(filepath.Join(j.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, rec := j.wait(); code != jobs.CodeNoChanges || rec.State != jobs.StateCompleted {
		t.Errorf("exit %d, %+v\n%s", code, rec, j.read(store.FileRuntime))
	}
}
