package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/backends/all"
	"berth/internal/node/batch"
	"berth/internal/node/guest"
	"berth/internal/node/supervise"
	"berth/internal/sys/ids"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// envTimes carries the periods of supervision to the runner under test.
const envTimes = "TEST_RUNNER_TIMES"

// TestMain makes this binary the runner and the guest, too: a runner ends all
// processes below its own, so it cannot be tested inside of the tests' process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "sleep": // a helper of a container, by its name
			time.Sleep(time.Minute)
			leave(0)
		case "guest":
			leave(guest.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "runner":
			var given periods
			if err := json.Unmarshal([]byte(os.Getenv(envTimes)), &given); err != nil {
				panic(err)
			}
			batch.Schedulers = []jobs.NodeScheduler{starter{}}
			leave(start(os.Args[2:], testOpeners(), os.Stderr, given.times()))
		case "srun":
			leave(fakeSrun(os.Args[2:]))
		case VerbPutAway:
			leave(PutAwayMain(os.Args[2:], os.Stderr))
		case jobs.VerbRank:
			var given periods
			if err := json.Unmarshal([]byte(os.Getenv(envTimes)), &given); err != nil {
				panic(err)
			}
			leave(startRank(os.Args[2:], testOpeners(), os.Stdin, os.Stdout, os.Stderr, os.Getenv, given.times()))
		}
	}
	os.Exit(m.Run())
}

// envArgv is the line that stands for a backend's own, as JSON: what it opens is no
// container. "{node}" and "{overlay}" are the guest and the layer.
const envArgv = "BERTH_TEST_ARGV"

// testOpeners are the real backends, but for their lines.
func testOpeners() []jobs.Opener {
	out := all.Openers(run.Local{})
	for i := range out {
		out[i] = scripted{out[i]}
	}
	return out
}

type scripted struct{ jobs.Opener }

func (s scripted) Open(ctx context.Context, e *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	op, err := s.Opener.Open(ctx, e, at)
	if words := os.Getenv(envArgv); err == nil && words != "" {
		op.Line = func(l jobs.LineAt) (argv, notes []string, err error) {
			err = json.Unmarshal([]byte(words), &argv)
			return jobs.Placeholders{jobs.PlaceholderNode: l.Guest, jobs.PlaceholderOverlay: l.Layer}.Fill(argv), nil, err
		}
	}
	return op, err
}

// leave ends this process without the second that the race detector makes
// os.Exit sleep; counters of coverage are written only by os.Exit.
func leave(code int) {
	if os.Getenv("GOCOVERDIR") != "" {
		os.Exit(code)
	}
	syscall.Exit(code)
}

// periods are the times that a test may set, for a slow machine and yet short.
type periods struct {
	Beat, GuestWait, Silent, Start, Grace, Unmount time.Duration
}

// The grace is short for those that use all of it; a command that is to act on
// a TERM gets one that is patient.
var quick = periods{Beat: 100 * time.Millisecond, GuestWait: time.Minute, Silent: 2 * time.Second, Start: time.Minute, Grace: 500 * time.Millisecond, Unmount: 3 * time.Second}

// patient is a time that guards against hanging alone.
const patient = 3 * time.Minute

// slow is what a machine with much else to do gets for what must happen in time,
// where a test has to wait until that is over.
const slow = 12 * time.Second

// writeProgram writes a file that is to be executed. No other test may fork
// meanwhile: its child would have the file open for writing until it becomes
// another program, and the kernel executes no such file.
func writeProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o700) //nolint:gosec // a program
}

func (p periods) times() times {
	return times{insist: p.Silent, grace: p.Grace, Times: supervise.Times{Beat: p.Beat, Fresh: p.GuestWait, Unanswered: int(p.GuestWait/p.Beat) + 1,
		GuestWait: p.GuestWait, Dead: p.GuestWait, Silent: p.Silent, Start: p.Start, Unmount: p.Unmount}}
}

// job is a recorded job and its runner.
type job struct {
	t       *testing.T
	rec     *jobs.Record
	dir     string // of the attempt
	tmp     string // of the node
	periods periods
	env     []string
	argv    []string // opens the place in the backend's stead; nil is that the backend does
	follow  string   // the program that begins the next attempt, or ""
	cmd     *exec.Cmd
	stderr  *bytes.Buffer
	done    chan struct{}
}

// newJob records a job of the local backend for a shell command.
func newJob(t *testing.T, command string, change func(*store.New)) *job {
	t.Helper()
	return newJobIn(t, filepath.Join(t.TempDir(), "state"), command, change)
}

// newJobIn is the same in a ledger that there may be already.
func newJobIn(t *testing.T, home, command string, change func(*store.New)) *job {
	t.Helper()
	s, err := store.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	id, err := ids.New()
	if err != nil {
		t.Fatal(err)
	}
	attempt, err := ids.New()
	if err != nil {
		t.Fatal(err)
	}
	n := store.New{
		Spec: jobs.Spec{
			Version: 1, ID: id, Name: "a test", Slug: "a-test", Command: jobs.Command{Shell: command}, Created: time.Now().UTC(), User: "alice",
			Place: jobs.Place{
				Scheduler: jobs.SchedulerLocal, Backend: jobs.BackendLocal, Level: jobs.LevelNone,
			},
		},
		Attempt: jobs.AttemptInfo{Version: 1, ID: attempt, Number: 1, Name: jobs.JobName("a-test", attempt), Created: time.Now().UTC()},
		Script:  func(string) (string, error) { return "#!/bin/sh\n", nil },
	}
	if change != nil {
		change(&n)
	}
	rec, err := s.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	return &job{t: t, rec: rec, dir: rec.Current().Dir, tmp: t.TempDir(), periods: quick}
}

// start starts the job's runner as a scheduler does, in no one's session.
func (j *job) start() *job {
	j.t.Helper()
	self, err := os.Executable()
	if err != nil {
		j.t.Fatal(err)
	}
	times, err := json.Marshal(j.periods)
	if err != nil {
		j.t.Fatal(err)
	}
	if j.argv != nil {
		opens, err := json.Marshal(j.argv)
		if err != nil {
			j.t.Fatal(err)
		}
		j.env = append(j.env, envArgv+"="+string(opens))
	}
	words := []string{"runner", "--attempt", j.dir}
	if j.follow != "" {
		words = append(words, "--follow", j.follow)
	}
	j.cmd, j.stderr, j.done = exec.Command(self, append(words, "--", "shown", "to", "people")...), &bytes.Buffer{}, make(chan struct{})
	j.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + j.tmp, "TMPDIR=" + j.tmp, "USER=alice", envTimes + "=" + string(times), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}, j.env...)
	j.cmd.Stderr, j.cmd.Dir = j.stderr, "/"
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	j.cmd.WaitDelay = time.Second
	if err := j.cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	cmd, done := j.cmd, j.done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	j.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		j.nothingLeft()
		if s := j.stderr.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "goroutine ") {
			j.t.Error(s)
		}
	})
	return j
}

// wait waits for the runner's end and returns its exit code and record.
func (j *job) wait() (int, jobs.ExitRecord) {
	j.t.Helper()
	select {
	case <-j.done:
	case <-time.After(2 * patient):
		j.t.Fatalf("the runner does not end: %s", j.read(store.FileRuntime))
	}
	a, err := store.LoadAttempt(j.dir)
	if err != nil {
		j.t.Fatal(err)
	}
	if a.Exit == nil {
		return j.cmd.ProcessState.ExitCode(), jobs.ExitRecord{}
	}
	return j.cmd.ProcessState.ExitCode(), *a.Exit
}

// run is start and wait.
func (j *job) run() (int, jobs.ExitRecord) {
	j.t.Helper()
	return j.start().wait()
}

func (j *job) signal(sig syscall.Signal) {
	j.t.Helper()
	if err := j.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		j.t.Fatal(err)
	}
}

// read returns one of the attempt's files, or "".
func (j *job) read(name string) string {
	b, err := os.ReadFile(filepath.Join(j.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		j.t.Fatal(err)
	}
	return string(b)
}

// says waits until the command's standard output holds a text.
func (j *job) says(text string) {
	j.t.Helper()
	eventually(j.t, "the command says "+text, func() bool { return strings.Contains(j.read(store.FileStdout), text) })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// processes are the ones that carry the job's mark, but for its runner: the
// guest, and what descends from it.
func (j *job) processes() map[int]string {
	out := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		var pid int
		if _, err := fmt.Sscan(filepath.Base(d), &pid); err != nil || pid == j.cmd.Process.Pid {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(d, "environ"))
		if strings.Contains(string(environ), "HOME="+j.tmp) {
			line, _ := os.ReadFile(filepath.Join(d, "cmdline"))
			out[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return out
}

// nothingLeft fails the test when a process of the job or its scratch
// directory is still there a moment after its end.
func (j *job) nothingLeft() {
	j.t.Helper()
	var left map[int]string
	for deadline := time.Now().Add(patient); ; time.Sleep(10 * time.Millisecond) {
		if left = j.processes(); len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	for pid, line := range left {
		j.t.Errorf("process %d is left: %s", pid, line)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// scratches are the job's scratch directories on the node.
func (j *job) scratches() []string {
	dirs, _ := filepath.Glob(filepath.Join(j.tmp, "berth-*"))
	return dirs
}
