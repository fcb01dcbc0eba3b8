package jobstest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"berth/jobs"
)

// FakeScheduler is a scheduler in memory. The test decides when a job starts
// and how it ends ([FakeScheduler.Start], [FakeScheduler.End]), and what goes
// wrong (the exported fields, each read at the time of the call). It is safe
// for concurrent use; set the fields with [FakeScheduler.Fault].
type FakeScheduler struct {
	// Submits is called before each Submit does anything; an error is
	// returned and nothing was submitted.
	Submits func(l jobs.Launch) error
	// LoseReplies makes that many Submits do their work and answer
	// [jobs.KindUnclear].
	LoseReplies int
	// Queries, when not nil, is what Find, Status and Cancel answer.
	Queries error
	// Forgets makes Status leave out jobs that are over.
	Forgets bool
	// Left is what Room answers.
	Left jobs.Room
	// Health is what Check answers; empty is healthy.
	Health jobs.Health

	mu    sync.Mutex
	next  int
	jobs  map[string]*fakeJob // by native id
	calls Calls
	woken chan struct{} // closed and replaced at each change
}

// Calls counts what a [FakeScheduler] was asked.
type Calls struct{ Submit, Find, Status, Cancel int }

type fakeJob struct {
	launch jobs.Launch
	handle jobs.Handle
	status jobs.Status
}

var _ jobs.Cluster = (*FakeScheduler)(nil)

// NewFake returns a healthy scheduler without jobs.
func NewFake() *FakeScheduler {
	return &FakeScheduler{jobs: map[string]*fakeJob{}, woken: make(chan struct{})}
}

// Fault changes the fields while the scheduler is in use.
func (f *FakeScheduler) Fault(set func(f *FakeScheduler)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(f)
}

// Calls returns how often each method was called.
func (f *FakeScheduler) Calls() Calls {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Launches returns what was submitted, in order.
func (f *FakeScheduler) Launches() []jobs.Launch {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []jobs.Launch
	for i := 1; i <= f.next; i++ {
		if j := f.jobs[strconv.Itoa(i)]; j != nil {
			all = append(all, j.launch)
		}
	}
	return all
}

// Await waits until a job of this name was submitted and returns its launch.
func (f *FakeScheduler) Await(ctx context.Context, name string) (jobs.Launch, error) {
	for {
		f.mu.Lock()
		j, woken := f.named(name), f.woken
		f.mu.Unlock()
		if j != nil {
			return j.launch, nil
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return jobs.Launch{}, context.Cause(ctx)
		}
	}
}

// Start makes a pending job run.
func (f *FakeScheduler) Start(name string) {
	f.Set(name, jobs.Status{State: jobs.StateRunning, NativeState: "RUNNING", Node: "fake1"})
}

// End ends a job with an exit code.
func (f *FakeScheduler) End(name string, code int) {
	st := jobs.Status{State: jobs.StateCompleted, NativeState: "COMPLETED"}
	if code != 0 {
		st = jobs.Status{State: jobs.StateFailed, NativeState: "FAILED", Reason: "NonZeroExitCode", Code: code}
	}
	f.Set(name, st)
}

// Set gives a job any status. It panics when there is no such job: the test is
// wrong.
func (f *FakeScheduler) Set(name string, st jobs.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.named(name)
	if j == nil {
		panic("jobstest: no job " + name)
	}
	if st.State.Final() && st.Class == jobs.ClassNone {
		st.Class = Classes[st.NativeState]
	}
	j.status = st
	f.wake()
}

// Forget removes a job, as a scheduler does some time after its end.
func (f *FakeScheduler) Forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if j := f.named(name); j != nil {
		delete(f.jobs, j.handle.NativeID)
		f.wake()
	}
}

func (f *FakeScheduler) named(name string) *fakeJob {
	for i := f.next; i > 0; i-- {
		if j := f.jobs[strconv.Itoa(i)]; j != nil && j.launch.Name == name {
			return j
		}
	}
	return nil
}

func (f *FakeScheduler) wake() {
	close(f.woken)
	f.woken = make(chan struct{})
}

// Name returns "fake".
func (*FakeScheduler) Name() string { return "fake" }

// Check answers Health.
func (f *FakeScheduler) Check(context.Context) jobs.Checked {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Health == "" {
		return jobs.Checked{Health: jobs.Healthy, Reason: "a scheduler in memory"}
	}
	return jobs.Checked{Health: f.Health, Reason: "the test says so"}
}

// Render returns a text that holds the command line.
func (*FakeScheduler) Render(l jobs.Launch) (string, error) {
	for _, w := range l.Argv {
		if err := jobs.CheckText("a word of the command line", w); err != nil {
			return "", err
		}
	}
	return "#!/bin/bash\n# " + l.Name + "\n# " + strings.Join(l.Argv, " ") + "\n", nil
}

// Submit takes the launch as a pending job, unless a fault says otherwise.
func (f *FakeScheduler) Submit(_ context.Context, l jobs.Launch, _ string) (jobs.Handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls.Submit++
	if f.Submits != nil {
		if err := f.Submits(l); err != nil {
			return jobs.Handle{}, err
		}
	}
	f.next++
	id := strconv.Itoa(f.next)
	j := &fakeJob{launch: l, status: jobs.Status{State: jobs.StatePending, NativeState: "PENDING"},
		handle: jobs.Handle{Version: 1, Scheduler: f.Name(), NativeID: id, Name: l.Name, Elements: l.Elements}}
	f.jobs[id] = j
	f.wake()
	if f.LoseReplies > 0 {
		f.LoseReplies--
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindUnclear, Msg: "the reply was lost"}
	}
	return j.handle, nil
}

// Find returns the jobs of these names that are remembered.
func (f *FakeScheduler) Find(_ context.Context, names []string) (map[string]jobs.Handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls.Find++
	if f.Queries != nil {
		return nil, f.Queries
	}
	found := map[string]jobs.Handle{}
	for _, n := range names {
		if j := f.named(n); j != nil && !f.gone(j) {
			found[n] = j.handle
		}
	}
	return found, nil
}

// Status returns what the test has set.
func (f *FakeScheduler) Status(_ context.Context, handles []jobs.Handle) (map[string]jobs.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls.Status++
	if f.Queries != nil {
		return nil, f.Queries
	}
	answer := map[string]jobs.Status{}
	for _, h := range handles {
		if j := f.jobs[h.NativeID]; j != nil && j.launch.Name == h.Name && !f.gone(j) {
			answer[h.Name] = j.status
		}
	}
	return answer, nil
}

func (f *FakeScheduler) gone(j *fakeJob) bool { return f.Forgets && j.status.State.Final() }

// Cancel ends the jobs that are not over.
func (f *FakeScheduler) Cancel(_ context.Context, handles []jobs.Handle) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls.Cancel++
	if f.Queries != nil {
		return f.Queries
	}
	for _, h := range handles {
		if j := f.jobs[h.NativeID]; j != nil && j.launch.Name == h.Name && !j.status.State.Final() {
			j.status = jobs.Status{State: jobs.StateCancelled, NativeState: "CANCELLED", Reason: fmt.Sprintf("by test, was %s", j.status.State)}
			f.wake()
		}
	}
	return nil
}

// Step returns a command line that says what it is.
func (*FakeScheduler) Step(h jobs.Handle, node string, argv []string) jobs.Cmd {
	return jobs.Cmd{Argv: append([]string{"step", h.NativeID, node}, argv...)}
}

// StepError knows no words.
func (*FakeScheduler) StepError(jobs.Handle, string) (jobs.Kind, string, bool) {
	return jobs.KindInfra, "", false
}

// Show names the job.
func (*FakeScheduler) Show(h jobs.Handle) string { return "show job " + h.NativeID }

// Most knows no bound.
func (*FakeScheduler) Most(context.Context, jobs.SlurmOptions) (jobs.Most, error) {
	return jobs.Most{}, nil
}

// Partitions knows none.
func (*FakeScheduler) Partitions() []string { return nil }

// Room answers Left.
func (f *FakeScheduler) Room(context.Context, jobs.SlurmOptions, string) (jobs.Room, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Left, f.Queries
}

// Forecast knows no other way.
func (*FakeScheduler) Forecast(context.Context, jobs.Status, string, jobs.Resources, jobs.SlurmOptions) ([]jobs.Forecast, error) {
	return nil, nil
}

// List lists nothing.
func (*FakeScheduler) List(context.Context) ([]jobs.Listed, error) { return nil, nil }

// Classes are what kind of trouble the final words say by themselves with which
// tests let jobs of a [FakeScheduler] end. They are Slurm's.
var Classes = map[string]jobs.Class{
	"PREEMPTED": jobs.ClassPreempted, "NODE_FAIL": jobs.ClassNode, "BOOT_FAIL": jobs.ClassNode,
	"LAUNCH_FAILED": jobs.ClassNode, "RECONFIG_FAIL": jobs.ClassNode,
	"TIMEOUT": jobs.ClassTime, "OUT_OF_MEMORY": jobs.ClassMemory, "DEADLINE": jobs.ClassPolicy,
}
