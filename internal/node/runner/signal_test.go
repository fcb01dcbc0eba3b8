package runner

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/node/container"
	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

func (j *job) cancel() {
	j.t.Helper()
	if _, err := store.SetCancel(j.rec.Dir, jobs.Cancel{Version: 1, Time: time.Now(), By: "alice"}); err != nil {
		j.t.Fatal(err)
	}
}

// Every way to end a job from outside.
func TestStopped(t *testing.T) {
	for _, c := range []struct {
		name, command string
		how           func(j *job)
		slurm         bool
		env           []string
		code          int
		state         jobs.State
		reason        string
	}{
		{name: "cancel and TERM", how: func(j *job) { j.cancel(); j.signal(syscall.SIGTERM) }, code: 130, state: jobs.StateCancelled, reason: "cancelled"},
		{name: "cancel file alone", how: (*job).cancel, code: 130, state: jobs.StateCancelled, reason: "cancelled"},
		{name: "cancel of the stubborn", command: stubborn, how: func(j *job) { j.cancel(); j.signal(syscall.SIGTERM) }, code: 130, state: jobs.StateCancelled, reason: "cancelled"},
		{name: "TERM", how: func(j *job) { j.signal(syscall.SIGTERM) }, code: 130, state: jobs.StateCancelled, reason: "ended from outside (signal terminated)"},
		{name: "INT", how: func(j *job) { j.signal(syscall.SIGINT) }, code: 130, state: jobs.StateCancelled, reason: "signal interrupt"},
		{name: "TERM by Slurm", slurm: true, env: []string{"SLURM_JOB_ID=17"}, how: func(j *job) { j.signal(syscall.SIGCONT); j.signal(syscall.SIGTERM) },
			code: 130, state: jobs.StateCancelled, reason: "ended by the scheduler"},
		// A scheduler signals all processes of a job at once: here the command
		// is the first to act on it.
		{name: "command dies first", command: "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done",
			how: func(j *job) { j.cancel(); j.termAll() }, code: 130, state: jobs.StateCancelled, reason: "cancelled"},
		{name: "command is killed first", command: "echo ready; exec sleep 60",
			how: (*job).termAll, code: 130, state: jobs.StateCancelled, reason: "ended from outside"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.command == "" {
				c.command = "echo ready; sleep 60"
			}
			j := newJob(t, c.command, func(n *store.New) {
				if c.slurm {
					n.Spec.Scheduler = jobs.SchedulerSlurm
				}
			})
			j.env = c.env
			if strings.HasPrefix(c.command, "trap 'exit") {
				j.periods.Grace = patient
			}
			j.start()
			j.says("ready")
			c.how(j)
			code, rec := j.wait()
			if code != c.code || rec.Code != c.code || rec.State != c.state || !strings.Contains(rec.Reason, c.reason) {
				t.Errorf("exit %d, %+v", code, rec)
			}
			if c.slurm != (rec.Hint != "") {
				t.Errorf("hint %q", rec.Hint)
			}
			if left := j.scratches(); len(left) > 0 {
				t.Errorf("left on the node: %q", left)
			}
		})
	}
}

// termAll sends TERM to the guest, to all that it runs, and to the runner, which
// does not run before all have theirs: so it is as if it were at one moment.
func (j *job) termAll() {
	j.t.Helper()
	j.signal(syscall.SIGSTOP)
	j.termCommands()
	time.Sleep(20 * time.Millisecond) // the command acts on it
	j.signal(syscall.SIGTERM)
	j.signal(syscall.SIGCONT)
}

// termCommands sends TERM to the guest and to all that it runs.
func (j *job) termCommands() {
	j.t.Helper()
	for pid := range j.processes() {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}

// A job that was cancelled before its runner began starts nothing, and its
// secrets are gone.
func TestCancelledBefore(t *testing.T) {
	t.Parallel()
	j := newJob(t, "echo never", func(n *store.New) { n.Secrets = []string{"A=b"} })
	j.cancel()
	code, rec := j.run()
	if code != 130 || rec.State != jobs.StateCancelled || rec.Exit.Started || rec.Reason != "cancelled before it started" || j.read(store.FileStdout) != "" || j.read("env") != "" {
		t.Errorf("exit %d, %+v", code, rec)
	}
}

// Other signals, and TERM a second time, change nothing.
func TestDeafSignals(t *testing.T) {
	t.Parallel()
	j := newJob(t, "trap '' HUP; echo ready; sleep 0.5", nil).start()
	j.says("ready")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT} {
		j.signal(sig)
	}
	if code, rec := j.wait(); code != 0 || rec.State != jobs.StateCompleted {
		t.Errorf("exit %d, %+v", code, rec)
	}
}

// A runner that is killed takes its guest and the whole tree along, without
// anybody's help; the next runner on the node removes its scratch directory.
func TestRunnerKilled(t *testing.T) {
	t.Parallel()
	j := newJob(t, stubborn, nil).start()
	j.says("ready")
	eventually(t, "three processes", func() bool { return len(j.processes()) >= 3 })
	j.signal(syscall.SIGKILL)
	<-j.done
	eventually(t, "the tree ends", func() bool { return len(j.processes()) == 0 })
	if len(j.scratches()) != 1 {
		t.Errorf("on the node: %q", j.scratches())
	}
	next := newJob(t, "true", nil)
	next.tmp = j.tmp
	if code, _ := next.run(); code != 0 {
		t.Errorf("the next one: exit %d", code)
	}
	if left := next.scratches(); len(left) > 0 {
		t.Errorf("left on the node: %q", left)
	}
}

// A runner that hangs no longer pings, and its guest leaves; when it goes on,
// it finds that out.
func TestRunnerStopped(t *testing.T) {
	t.Parallel()
	j := newJob(t, stubborn, nil)
	j.periods.GuestWait = slow
	j.start()
	j.says("ready")
	j.signal(syscall.SIGSTOP)
	eventually(t, "the tree ends", func() bool { return alive(j.processes()) == 0 })
	j.signal(syscall.SIGCONT)
	if code, rec := j.wait(); code != jobs.CodeInfra || rec.State != jobs.StateError || !strings.Contains(rec.Reason, "no ping reached it") {
		t.Errorf("exit %d, %+v", code, rec)
	}
}

// The end of a command that its guest has told before it left is believed by a
// runner that stood still meanwhile, and is no other one's after it: nothing is
// run again.
func TestEndedBeforeLeaving(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"quiet":       "echo ready; until test -e $GO; do sleep 0.02; done; exit 7",
		"much to say": "echo ready; until test -e $GO; do sleep 0.02; done; head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2; exit 7",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goOn := filepath.Join(t.TempDir(), "go")
			j := newJob(t, strings.ReplaceAll(command, "$GO", goOn), func(n *store.New) { n.Spec.Resources.Time = 2 * slow })
			j.periods.GuestWait = slow
			j.start()
			j.says("ready")
			j.signal(syscall.SIGSTOP)
			if err := os.WriteFile(goOn, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the guest leaves", func() bool { return alive(j.processes()) == 0 })
			j.signal(syscall.SIGCONT)
			code, rec := j.wait()
			if code != jobs.CodeTaskFailed || rec.State != jobs.StateFailed || rec.Exit != (jobs.Exit{Started: true, Code: 7}) {
				t.Errorf("exit %d, %+v", code, rec)
			}
		})
	}
}

// alive counts those that are no zombies: their parent is stopped.
func alive(pids map[int]string) (n int) {
	for pid := range pids {
		if lease.StartTime(pid) != "" {
			n++
		}
	}
	return n
}

// A runner whose beat cannot be written, or whose claim is another's, lets its
// guest go.
func TestFenced(t *testing.T) {
	for name, fence := range map[string]func(j *job) error{
		"claim": func(j *job) error {
			b := strings.Replace(j.read("claim.json"), `"pid": `, `"pid": 1`, 1)
			return os.WriteFile(j.dir+"/claim.json", []byte(b), 0o600)
		},
		"no claim": func(j *job) error { return os.Remove(j.dir + "/claim.json") },
		"no beat": func(j *job) error {
			if err := os.Remove(j.dir + "/beat"); err != nil {
				return err
			}
			return os.Mkdir(j.dir+"/beat", 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, stubborn, nil)
			j.periods.GuestWait = slow
			j.start()
			j.says("ready")
			if err := fence(j); err != nil {
				t.Fatal(err)
			}
			code, rec := j.wait()
			if code != jobs.CodeInfra || rec.State != jobs.StateError {
				t.Errorf("exit %d, %+v", code, rec)
			}
		})
	}
}

// killGuest kills the guest alone.
func (j *job) killGuest() { j.signalGuest(syscall.SIGKILL) }

func (j *job) signalGuest(sig syscall.Signal) {
	j.t.Helper()
	for pid, line := range j.processes() {
		if strings.HasSuffix(line, " guest ") {
			if err := syscall.Kill(pid, sig); err != nil {
				j.t.Fatal(err)
			}
		}
	}
}

// A guest that hangs cannot end anything: the runner does, a little after the
// grace.
func TestGuestStopped(t *testing.T) {
	t.Parallel()
	j := newJob(t, stubborn, nil).start()
	j.says("ready")
	j.signalGuest(syscall.SIGSTOP)
	j.cancel()
	j.signal(syscall.SIGTERM)
	if code, rec := j.wait(); code != jobs.CodeInterrupted || rec.State != jobs.StateCancelled || rec.Exit.Signal != 9 {
		t.Errorf("exit %d, %+v", code, rec)
	}
}

// When a cancel takes the guest along before the runner has heard of it, it is
// a cancel all the same.
func TestGuestKilledByCancel(t *testing.T) {
	t.Parallel()
	j := newJob(t, "echo ready; sleep 60", nil)
	j.periods.Beat = time.Minute
	j.start()
	j.says("ready")
	j.cancel()
	j.killGuest()
	if code, rec := j.wait(); code != jobs.CodeInterrupted || rec.State != jobs.StateCancelled {
		t.Errorf("exit %d, %+v", code, rec)
	}
}

// A guest that is killed is an error of ours, and the tree goes with it.
func TestGuestKilled(t *testing.T) {
	t.Parallel()
	j := newJob(t, stubborn, nil).start()
	j.says("ready")
	j.killGuest()
	code, rec := j.wait()
	if code != jobs.CodeInfra || rec.State != jobs.StateError || !strings.Contains(rec.Reason, "before its command did") {
		t.Errorf("exit %d, %+v", code, rec)
	}
}

// Memory that no cgroup holds is watched.
func TestMemoryWatched(t *testing.T) {
	t.Parallel()
	j := newJob(t, "echo small; sleep 0.1; head -c 600M /dev/zero | tail -c 500M | sleep 60", func(n *store.New) { n.Spec.Resources.Memory = 300 * jobs.MiB })
	code, rec := j.run()
	if got := container.OwnCgroup("/proc/self/cgroup", "/sys/fs/cgroup").Limit(); got != 0 && got <= 330*jobs.MiB {
		t.Skipf("a cgroup holds %s here", got)
	}
	if code != 1 || rec.State != jobs.StateOutOfMemory || !rec.Exit.OOM || !strings.Contains(rec.Reason, "more than the 300MiB it asked for") || !strings.Contains(strings.Join(rec.Notes, " "), "advisory") {
		t.Errorf("exit %d, %+v", code, rec)
	}
}

// What is written to the standard error of a container after its guest has spoken
// may be the task's: it is marked so, bounded, and no word of the container
// program's when the guest is gone.
func TestForgedLog(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	j := newJob(t, "echo 'FATAL:   no space left' >"+pipe+"; echo ready; sleep 60", nil)
	// As what a task writes by way of the guest's descriptors comes out.
	j.argv = []string{"sh", "-c", `mkfifo "$1"; (cat "$1" >&2; head -c 6000000 /dev/zero | tr '\0' x >&2; touch "$1.written") & exec "$0" guest`, self, pipe}
	j.start()
	j.says("ready")
	eventually(t, "all is written", func() bool { _, err := os.Stat(pipe + ".written"); return err == nil })
	j.killGuest()
	_, rec := j.wait()
	log := j.read(store.FileRuntime)
	if strings.Contains(rec.Reason, "no space left") || !strings.Contains(log, "\ninside: FATAL:   no space left\n") || strings.Contains(log, "\nFATAL") {
		t.Errorf("%+v\n%.2000s", rec, log)
	}
	if len(log) > container.MaxLog || !strings.Contains(log, "no more is kept of what came from inside\n") || !strings.Contains(log, "msg=ended") {
		t.Errorf("%d bytes, which end with %q", len(log), log[max(0, len(log)-300):])
	}
}
