//go:build linux

package pool_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/engine"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
	"berth/test/fakes/pool"
)

// site is an engine on a machine that submits to a pool.
type site struct {
	*engine.Engine
	t    *testing.T
	pool *pool.Pool
}

func newSite(t *testing.T) *site { return newSiteWith(t, engine.Options{}) }

func newSiteWith(t *testing.T, o engine.Options) *site {
	t.Helper()
	p, yard := newPool(t)
	o.Home = filepath.Join(t.TempDir(), "state")
	e, err := engine.Open(t.Context(), o)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	e.Schedulers = []jobs.Scheduler{p}
	e.Node = func() (string, error) { return self, nil }
	e.Aside = func(log string, words ...string) error {
		_, err := run.Detach(append([]string{self}, words...), append(os.Environ(), "BERTH_HOME="+e.Store.Home(), "POOL_YARD="+yard), "/", log)
		return err
	}
	e.Getenv = func(string) (string, bool) { return "", false }
	return &site{e, t, p}
}

// submit submits a shell text, with what else is asked for.
func (s *site) submit(text string, change func(*jobs.Task)) *jobs.Record {
	s.t.Helper()
	task := jobs.Task{Name: "a task", Command: jobs.Command{Shell: text}, Place: jobs.Place{Backend: jobs.BackendLocal}, Retry: &jobs.Retry{}}
	if change != nil {
		change(&task)
	}
	spec, err := s.Plan(s.t.Context(), task, engine.Choice{}, false)
	must(s.t, err)
	rec, err := s.Submit(s.t.Context(), spec, task)
	must(s.t, err)
	if rec.Spec.Scheduler != pool.Name || !strings.HasSuffix(rec.Current().Submitted.Handle.NativeID, ".pool") {
		s.t.Fatalf("submitted to %s: %+v", rec.Spec.Scheduler, rec.Current().Submitted)
	}
	return rec
}

// wait waits for the end of a job.
func (s *site) wait(r *jobs.Record, state jobs.State) *jobs.Record {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	v, err := s.Wait(ctx, r.Spec.ID, nil)
	if err != nil || v.State != state {
		a := v.Current()
		s.t.Fatalf("%s, want %s: %v\n%+v\n%+v\n%s\n%s", v.State, state, err, a.Exit, a.Verdict, read(a.Dir, store.FileRuntime), read(a.Dir, jobs.SchedulerLog))
	}
	return v.Record
}

// read is a file of an attempt, or "".
func read(dir, name string) string {
	b, _ := os.ReadFile(filepath.Join(dir, name))
	return string(b)
}

// says waits until the command of a job's current attempt has said something.
func (s *site) says(r *jobs.Record, text string) *jobs.Record {
	s.t.Helper()
	eventually(s.t, "the command says "+text, func() bool {
		now, err := s.Store.Load(r.Spec.ID)
		must(s.t, err)
		r = now
		return strings.Contains(read(r.Current().Dir, store.FileStdout), text)
	})
	return r
}

// repo is a repository with one commit.
func repo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("old\n"), 0o600))
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"}} {
		out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	return dir
}

// A job goes from submit to a branch, and sees what the scheduler passes on and
// nothing else of its.
func TestJob(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := repo(t)
	r := s.submit(`echo new >file; echo "$POOL_TICKET $POOL_HOST $POOL_ROUND $POOL_YARD."`, func(task *jobs.Task) {
		task.Workspace = &jobs.Workspace{Repo: dir}
		task.Resources = jobs.Resources{CPUs: 2, Memory: jobs.GiB, Time: time.Hour}
	})
	r = s.wait(r, jobs.StateCompleted)
	a := r.Current()
	if got, want := read(a.Dir, store.FileStdout), a.Submitted.Handle.NativeID+" n1.pool 0 .\n"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
	if a.Claim.NativeID != a.Submitted.Handle.NativeID || a.Claim.Node != "n1.pool" || a.Exit.State != jobs.StateCompleted {
		t.Errorf("claim %+v, exit %+v", a.Claim, a.Exit)
	}
	out, err := exec.Command("git", "-C", dir, "show", r.Spec.Workspace.Branch+":file").CombinedOutput()
	if err != nil || string(out) != "new\n" {
		t.Errorf("branch %s: %v, %q", r.Spec.Workspace.Branch, err, out)
	}
}

// A job that waits for another begins behind it, and one that asks for too much is
// refused and leaves nothing.
func TestAfter(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	gate := filepath.Join(t.TempDir(), "gate")
	first := s.submit(`echo ready; until [ -e "`+gate+`" ]; do sleep 0.05; done`, nil)
	s.says(first, "ready")
	second := s.submit("true", func(task *jobs.Task) { task.After = []string{"ok:" + first.Spec.ID} })
	eventually(t, "it waits for the first", func() bool {
		v := s.Reconcile(t.Context(), []*jobs.Record{second})[0]
		return v.State == jobs.StatePending && v.Status.Reason == "behind "+first.Current().Submitted.Handle.NativeID
	})
	must(t, os.WriteFile(gate, nil, 0o600))
	second = s.wait(second, jobs.StateCompleted)
	if a := s.wait(first, jobs.StateCompleted).Current(); second.Current().Claim.Time.Before(a.Exit.Started) {
		t.Error("it did not wait")
	}
	task := jobs.Task{Name: "big", Command: jobs.Command{Shell: "true"}, Place: jobs.Place{Backend: jobs.BackendLocal, Scheduler: pool.Name, Resources: jobs.Resources{CPUs: 99}}, Retry: &jobs.Retry{}}
	spec, err := s.Plan(t.Context(), task, engine.Choice{}, false)
	must(t, err)
	if _, err := s.Submit(t.Context(), spec, task); jobs.KindOf(err) != jobs.KindRejected {
		t.Errorf("too many CPUs: %v", err)
	}
}

// A runner that is killed leaves no word: the job that looks after it, which the pool
// has started when the attempt had ended, begins another attempt, on another node.
func TestReaper(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.submit(`echo "on $POOL_HOST"; [ "$POOL_HOST" = n2.pool ] || sleep 600`, func(task *jobs.Task) {
		task.Retry, task.Profile.Beat = jobs.DefaultRetry(), time.Second
	})
	r = s.says(r, "on n1.pool")
	eventually(t, "its reaper is submitted", func() bool {
		now, err := s.Store.Load(r.Spec.ID)
		must(t, err)
		return now.Current().Reaper != nil
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the reaper says:\n%s", read(r.Attempts[0].Dir, store.FileReaperLog))
		}
	})
	must(t, syscall.Kill(r.Current().Claim.PID, syscall.SIGKILL))
	eventually(t, "there is an end", func() bool { // by no one who looks through the engine
		now, err := s.Store.Load(r.Spec.ID)
		must(t, err)
		r = now
		return len(r.Attempts) == 2 && r.Current().Exit != nil
	})
	first, second := r.Attempts[0], r.Attempts[1]
	if first.Verdict == nil || first.Verdict.Word != "X" || first.Decision == nil || first.Decision.Class != jobs.ClassNode {
		t.Errorf("first: %+v, %+v", first.Verdict, first.Decision)
	}
	if second.Exit.State != jobs.StateCompleted || read(second.Dir, store.FileStdout) != "on n2.pool\n" || !slices.Equal(second.Info.Change.Exclude, []string{"n1.pool"}) {
		t.Errorf("second: %+v, %+v\n%s", second.Info, second.Exit, read(second.Dir, store.FileRuntime))
	}
	s.wait(r, jobs.StateCompleted)
}

// What the pool puts back begins again under its id, and is the next attempt.
func TestRequeue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.submit(`echo "round $POOL_ROUND"; [ "$POOL_ROUND" = 1 ] || sleep 600`, func(task *jobs.Task) { task.Retry = jobs.DefaultRetry() })
	r = s.says(r, "round 0")
	id := r.Current().Submitted.Handle.NativeID
	must(t, s.pool.Again(id))
	r = s.wait(s.says(r, "round 1"), jobs.StateCompleted)
	if len(r.Attempts) != 2 {
		t.Fatalf("%d attempts", len(r.Attempts))
	}
	a := r.Current()
	if a.Claim.NativeID != id || a.Claim.Restart != 1 || a.Submitted.Handle.NativeID != id || r.Attempts[0].Decision.Class != jobs.ClassPreempted {
		t.Errorf("%+v, %+v, after %+v", a.Claim, a.Submitted, r.Attempts[0].Decision)
	}
}

// A cancelled job ends, whether it runs or waits.
func TestCancel(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.submit(`trap 'echo ends; exit 1' TERM; echo ready; while :; do sleep 0.05; done`, nil)
	waits := s.submit(`echo no`, func(task *jobs.Task) { task.After = []string{"any:" + r.Spec.ID} })
	r = s.says(r, "ready")
	must(t, s.Cancel(t.Context(), s.Reconcile(t.Context(), []*jobs.Record{waits, r}), "alice"))
	r, waits = s.wait(r, jobs.StateCancelled), s.wait(waits, jobs.StateCancelled)
	if got := read(r.Current().Dir, store.FileStdout); got != "ready\nends\n" || r.Current().Exit == nil {
		t.Errorf("stdout %q, exit %+v", got, r.Current().Exit)
	}
	if waits.Current().Claim != nil {
		t.Errorf("it began: %+v", waits.Current().Claim)
	}
}

// Commands come into the place of a job that runs, by a step on its node; of one with
// several ranks into the first.
func TestJoin(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, ranks := range []int{0, 2} {
		r := s.submit(`echo ready; sleep 600`, func(task *jobs.Task) { task.Resources.Tasks = ranks })
		r = s.says(r, "ready")
		var in *jobs.Inside
		eventually(t, "the place is recorded", func() bool { // by the first rank, which may not be the one that spoke
			var err error
			in, err = store.LoadInside(r.Current().Dir)
			must(t, err)
			return in != nil
		})
		if in.Node != "n1.pool" {
			t.Errorf("%d ranks: the place is on %q", ranks, in.Node)
		}
		j, err := s.Join(t.Context(), r, engine.JoinOptions{})
		if err != nil {
			t.Fatalf("%d ranks: %v, hint %s", ranks, err, jobs.HintOf(err))
		}
		got, err := j.Exec(t.Context(), engine.ExecRequest{Command: jobs.Command{Shell: `echo "$POOL_TICKET $POOL_SEAT"`}})
		want := r.Current().Submitted.Handle.NativeID + map[int]string{0: " \n", 2: " 0\n"}[ranks]
		if err != nil || got.Stdout.Text != want {
			t.Errorf("%d ranks: %+v, %v, want %q", ranks, got, err, want)
		}
		j.Close()
	}
}

// The time that the pool gives ends a job in order.
func TestLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.submit(`sleep 600`, func(task *jobs.Task) { task.Resources.Time = 3 * time.Second })
	r = s.wait(r, jobs.StateTimeout)
	if r.Current().Exit == nil {
		t.Errorf("no record: %+v", r.Current().Verdict)
	}
}

// Two ranks run side by side, and each knows which it is.
func TestRanks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.submit(`echo "rank $POOL_SEAT of $POOL_TICKET"`, func(task *jobs.Task) { task.Resources.Tasks = 2 })
	r = s.wait(r, jobs.StateCompleted)
	lines := strings.Split(strings.TrimSpace(read(r.Current().Dir, store.FileStdout)), "\n")
	slices.Sort(lines)
	id := r.Current().Submitted.Handle.NativeID
	if want := []string{"rank 0 of " + id, "rank 1 of " + id}; !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	r = s.submit(`[ "$POOL_SEAT" = 0 ] || exit 7; sleep 600`, func(task *jobs.Task) { task.Resources.Tasks = 2 })
	if a := s.wait(r, jobs.StateFailed).Current(); a.Exit.Exit.Code != 7 {
		t.Errorf("%+v", a.Exit)
	}
}

// An environment is held in a job of the pool: commands run there, in one session,
// and its end gives the job back.
func TestHeld(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v, err := s.Environment(t.Context(), jobs.EnvOptions{Name: "here", Lifetime: time.Minute,
		Place: jobs.Place{Backend: jobs.BackendLocal, Scheduler: pool.Name, Resources: jobs.Resources{Time: time.Hour}}})
	must(t, err)
	t.Cleanup(v.Close)
	session, err := v.Session("")
	must(t, err)
	for _, c := range [][2]string{{"cd /; x=5; echo $POOL_HOST", "n1.pool\n"}, {`echo "$PWD $x"`, "/ 5\n"}} {
		got, err := session.Exec(t.Context(), engine.ExecRequest{Command: jobs.Command{Shell: c[0]}})
		if err != nil || got.Code != 0 || got.Stdout.Text != c[1] {
			t.Fatalf("%s: %v %+v, hint %s", c[0], err, got, jobs.HintOf(err))
		}
	}
	list, err := s.pool.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	must(t, v.Stop(t.Context()))
	if list, err = s.pool.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("left: %+v, %v", list, err)
	}
	if _, err := s.Environment(t.Context(), jobs.EnvOptions{Name: "other", Place: jobs.Place{Backend: jobs.BackendLocal, Scheduler: "nowhere"}}); jobs.KindOf(err) != jobs.KindUsage || !strings.Contains(jobs.HintOf(err), pool.Name) {
		t.Errorf("an unknown scheduler: %v, %s", err, jobs.HintOf(err))
	}
}
