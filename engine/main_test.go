package engine

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"berth/backends/local"
	"berth/internal/sys/leaks"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// TestMain makes this binary what the examples start, too.
func TestMain(m *testing.M) {
	Main()
	leaks.Main(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scheduler is a fake under one of the real names, whose answers can be cut.
type scheduler struct {
	*jobstest.FakeScheduler
	name string
	// Partial is the error that comes beside Status's answer.
	partial error
	// FindFails makes so many looks by name fail; -1 is all of them.
	findFails int
	// OnFind is called before each look by name.
	onFind func()
	// OnStatus is called before each question.
	onStatus func()
}

func (s *scheduler) Name() string { return s.name }

func (s *scheduler) Find(ctx context.Context, names []string) (map[string]jobs.Handle, error) {
	if s.onFind != nil {
		s.onFind()
	}
	if s.findFails != 0 {
		s.findFails--
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "squeue: connection refused"}
	}
	return s.FakeScheduler.Find(ctx, names)
}

func (s *scheduler) Status(ctx context.Context, handles []jobs.Handle) (map[string]jobs.Status, error) {
	if s.onStatus != nil {
		s.onStatus()
	}
	answer, err := s.FakeScheduler.Status(ctx, handles)
	if err == nil {
		err = s.partial
	}
	return answer, err
}

// container is a backend with a health of the test's.
type container struct {
	local.Backend
	checked jobs.Checked
}

func (*container) Name() string                         { return jobs.BackendSingularity }
func (*container) Level() jobs.Level                    { return jobs.LevelFS }
func (c *container) Check(context.Context) jobs.Checked { return c.checked }

// fixture is an engine whose clock, schedulers and backends the test moves.
type fixture struct {
	*Engine
	t         *testing.T
	slurm     *scheduler
	queue     *scheduler
	container *container
	environ   map[string]string
	sif       string

	mu    sync.Mutex
	clock time.Time
	slept []time.Duration
	// onSleep is called after each wait.
	onSleep func()
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "home"))
	must(t, err)
	f := &fixture{
		t:         t,
		slurm:     &scheduler{FakeScheduler: jobstest.NewFake(), name: jobs.SchedulerSlurm},
		queue:     &scheduler{FakeScheduler: jobstest.NewFake(), name: jobs.SchedulerLocal},
		container: &container{checked: jobs.Checked{Health: jobs.Healthy, Reason: "/usr/bin/apptainer"}},
		environ:   map[string]string{"TOKEN": "canary-secret"},
		clock:     time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		sif:       filepath.Join(t.TempDir(), "image.sif"),
	}
	must(t, os.WriteFile(f.sif, siftest.New(uuid.New(), nil), 0o600))
	f.Engine = &Engine{
		Store: st, Schedulers: []jobs.Scheduler{f.slurm, f.queue}, Backends: []jobs.Backend{f.container, local.Backend{}},
		git: workspace.New(run.Local{}), Node: func() (string, error) { return "/bin/berth-node", nil },
		Getenv: func(n string) (string, bool) { v, ok := f.environ[n]; return v, ok },
		Now:    f.now,
		Sleep: func(ctx context.Context, d time.Duration) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			f.pass(d)
			f.slept = append(f.slept, d)
			if f.onSleep != nil {
				f.onSleep()
			}
			return nil
		},
	}
	return f
}

func (f *fixture) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clock
}

// pass lets time go by.
func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock = f.clock.Add(d)
}

// task runs on the bare host under slurm, once, unless changed.
func task(change ...func(*jobs.Task)) jobs.Task {
	t := jobs.Task{Name: "Fix the parser", Command: jobs.Command{Shell: "make test"}, Place: jobs.Place{Backend: jobs.BackendLocal}, Retry: &jobs.Retry{}}
	for _, c := range change {
		c(&t)
	}
	return t
}

// at is a task whose place is chosen, beside what it says itself.
func at(t jobs.Task, p jobs.Place) jobs.Task {
	put(&p.Backend, t.Backend)
	t.Scheduler, t.Backend, t.Profile, t.Login = p.Scheduler, p.Backend, p.Profile, p.Login
	return t
}

func (f *fixture) plan(t jobs.Task, c Choice) *jobs.Spec {
	f.t.Helper()
	s, err := f.Plan(f.t.Context(), t, c, false)
	must(f.t, err)
	return s
}

// submit plans and submits a task that goes well.
func (f *fixture) submit(t jobs.Task, c Choice) *jobs.Record {
	f.t.Helper()
	r, err := f.Submit(f.t.Context(), f.plan(t, c), t)
	must(f.t, err)
	return r
}

// claim is what the runner does first.
func (f *fixture) claim(r *jobs.Record) {
	f.t.Helper()
	a := r.Current()
	_, err := store.SetClaim(a.Dir, jobs.Claim{Version: 1, Attempt: a.Info.ID, Host: "n1", PID: 7, Time: f.now()})
	must(f.t, err)
	f.beat(r)
}

// beat is what it does every 10 s.
func (f *fixture) beat(r *jobs.Record) {
	f.t.Helper()
	dir := r.Current().Dir
	must(f.t, store.Beat(dir, 1, f.now()))
	must(f.t, os.Chtimes(filepath.Join(dir, "beat"), f.now(), f.now()))
}

// exit is its last word.
func (f *fixture) exit(r *jobs.Record, state jobs.State, code int) {
	f.t.Helper()
	_, err := store.SetExit(r.Current().Dir, jobs.ExitRecord{Version: 1, State: state, Code: code, Exit: jobs.Exit{Started: true, Code: code}, Ended: f.now()})
	must(f.t, err)
}

// launches are the attempts that were submitted.
func (f *fixture) launches() []jobs.Launch { return attemptsOf(f.slurm.Launches()) }

// attemptsOf leaves the reapers out.
func attemptsOf(l []jobs.Launch) []jobs.Launch {
	return slices.DeleteFunc(l, func(l jobs.Launch) bool { return l.Name == jobs.ReaperName(l.Attempt) })
}

func (f *fixture) load(r *jobs.Record) *jobs.Record {
	f.t.Helper()
	got, err := f.Store.Load(r.Spec.ID)
	must(f.t, err)
	return got
}

// see reads a record and brings it up to date, as a client verb does.
func (f *fixture) see(r *jobs.Record) View {
	f.t.Helper()
	v := f.Reconcile(f.t.Context(), []*jobs.Record{f.load(r)})[0]
	if again := jobs.StateOf(f.load(r)); again != v.State && v.Note == "" {
		f.t.Errorf("the view says %s and the ledger %s", v.State, again)
	}
	return v
}
