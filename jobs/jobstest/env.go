package jobstest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"berth/internal/sys/ids"
	"berth/jobs"
)

// Env is one scheduler under test, and how to move its jobs.
type Env struct {
	Scheduler jobs.Scheduler
	// Dir is an empty directory that the jobs see.
	Dir      string
	Identity jobs.Identity
	// Prepare settles what every launch needs here, such as a partition.
	Prepare func(l *jobs.Launch)
	// Hold changes a launch so that it stays pending.
	Hold func(t *testing.T, l *jobs.Launch)
	// Bad changes a launch so that the scheduler must refuse it.
	Bad func(l *jobs.Launch)
	// Start lets a job begin, End ends it with an exit code. Nil where jobs
	// are real: then the scheduler starts them, and they end when their
	// file "gate" says so.
	Start func(name string)
	End   func(name string, code int)
	// LoseReply makes the next Submit do its work and report that it does
	// not know. Nil where this cannot be made.
	LoseReply func(t *testing.T)
	// Break makes every later query fail.
	Break func(t *testing.T)
	// Remembers tells that ended jobs are still known, with their exit code.
	Remembers bool
	// Patience bounds each wait; zero is three minutes.
	Patience time.Duration
}

// waitForGate is a job that runs until it is told its exit code.
const waitForGate = `echo "$$" >"$1/started"; until [ -s "$1/gate" ]; do sleep 0.05; done; exit "$(cat "$1/gate")"`

// job is one launch of the suite.
type job struct {
	env    Env
	launch jobs.Launch
	script string
	handle jobs.Handle
}

// newJob renders a launch of its own and writes its script, as the engine
// does before it submits.
func newJob(t *testing.T, env Env, change ...func(*jobs.Launch)) *job {
	t.Helper()
	id, err := ids.New()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(env.Dir, jobs.Short(id))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l := jobs.Launch{Attempt: id, Name: jobs.JobName("suite", id), Dir: dir, Identity: env.Identity,
		Comment: []string{"a job of the conformance suite"},
		Argv:    []string{"/bin/bash", "-c", waitForGate, "job", dir}}
	if env.Prepare != nil {
		env.Prepare(&l)
	}
	for _, c := range change {
		c(&l)
	}
	text, err := env.Scheduler.Render(l)
	if err != nil {
		t.Fatalf("render: %v", err)
	}
	j := &job{env: env, launch: l, script: filepath.Join(dir, "script.sh")}
	if err := os.WriteFile(j.script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return j
}

// submit submits the job and sees to its end with the test's.
func (j *job) submit(t *testing.T) *job {
	t.Helper()
	h, err := j.env.Scheduler.Submit(t.Context(), j.launch, j.script)
	if err != nil {
		t.Fatalf("submit: %v (hint: %s)", err, jobs.HintOf(err))
	}
	j.handle = h
	j.endWithTest(t)
	return j
}

// endWithTest makes sure that nothing of the job outlives the test.
func (j *job) endWithTest(t *testing.T) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), j.env.patience())
		defer cancel()
		s := j.env.Scheduler
		for {
			found, err := s.Find(ctx, []string{j.launch.Name})
			if err != nil { // a test that broke its scheduler opens the gate itself
				j.gate(0)
				return
			}
			h, ok := found[j.launch.Name]
			if !ok {
				return
			}
			st, err := s.Status(ctx, []jobs.Handle{h})
			if known, ok := st[h.Name]; err == nil && (!ok || known.State.Final()) {
				return
			}
			if err := s.Cancel(ctx, []jobs.Handle{h}); err != nil && ctx.Err() == nil {
				t.Errorf("cancel at the end of the test: %v", err)
			}
			select {
			case <-ctx.Done():
				t.Errorf("job %s outlives the test", j.launch.Name)
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

func (j *job) gate(code int) {
	_ = os.WriteFile(filepath.Join(j.launch.Dir, "gate"), []byte(strconv.Itoa(code)), 0o600)
}

// start lets the job begin and waits until the scheduler says so.
func (j *job) start(t *testing.T) {
	t.Helper()
	if j.env.Start != nil {
		j.env.Start(j.launch.Name)
	}
	j.await(t, "running", func(st jobs.Status, known bool) bool { return known && st.State == jobs.StateRunning })
	if j.env.Start == nil {
		eventually(t, j.env, "the job's command begins", func() bool {
			_, err := os.Stat(filepath.Join(j.launch.Dir, "started"))
			return err == nil
		})
	}
}

// end ends the job's command with an exit code.
func (j *job) end(code int) {
	if j.env.End != nil {
		j.env.End(j.launch.Name, code)
		return
	}
	j.gate(code)
}

// status asks about this job alone; a failing query fails the test.
func (j *job) status(t *testing.T) (jobs.Status, bool) {
	t.Helper()
	answer, err := j.env.Scheduler.Status(t.Context(), []jobs.Handle{j.handle})
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	for name := range answer {
		if name != j.handle.Name {
			t.Fatalf("the answer holds %q, which was not asked about", name)
		}
	}
	st, ok := answer[j.handle.Name]
	return st, ok
}

func (j *job) await(t *testing.T, what string, is func(st jobs.Status, known bool) bool) jobs.Status {
	t.Helper()
	var last jobs.Status
	eventually(t, j.env, "the job is "+what, func() bool {
		st, known := j.status(t)
		last = st
		return is(st, known)
	})
	return last
}

// over tells whether the scheduler has nothing running any more.
func over(st jobs.Status, known bool) bool { return !known || st.State.Final() }

func (e Env) patience() time.Duration {
	if e.Patience == 0 {
		return 3 * time.Minute
	}
	return e.Patience
}

func eventually(t *testing.T, env Env, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(env.patience())
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", env.patience(), what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Occupy submits a job that runs until the test's end, so that others wait.
func Occupy(t *testing.T, env Env, change func(*jobs.Launch)) {
	t.Helper()
	newJob(t, env, change).submit(t).start(t)
}
