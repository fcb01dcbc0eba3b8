package engine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/google/go-cmp/cmp"
)

func TestWait(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	start := f.now()
	steps := []struct {
		at time.Duration
		do func()
	}{
		{10 * time.Second, func() {
			f.slurm.Set(r.Current().Info.Name, jobs.Status{State: jobs.StatePending, Explanation: "waits: no node"})
		}},
		{30 * time.Second, func() { f.slurm.Start(r.Current().Info.Name); f.claim(r) }},
		{time.Minute, func() { f.exit(r, jobs.StateFailed, 1) }},
	}
	f.onSleep = func() {
		if len(steps) > 0 && f.now().Sub(start) >= steps[0].at {
			steps[0].do()
			steps = steps[1:]
		}
		if f.load(r).Current().Claim != nil {
			f.beat(r)
		}
	}
	var seen []string // a job that waits is shown again when the reason is another one
	v, err := f.Wait(t.Context(), r.Spec.ID, func(v View) { seen = append(seen, string(v.State)+v.Status.Explanation) })
	must(t, err)
	if d := cmp.Diff([]string{"pending", "pendingwaits: no node", "running", "failed"}, seen); d != "" {
		t.Error(d)
	}
	if v.State != jobs.StateFailed || jobs.CodeOfRecord(v.Record) != 1 {
		t.Errorf("%s", v.State)
	}
	if f.slept[0] > 200*time.Millisecond {
		t.Errorf("the first wait is %v", f.slept[0])
	}
	for _, d := range f.slept {
		if d > 2*time.Second {
			t.Errorf("a wait of %v", d)
		}
	}
	// While it runs and beats, no one is asked; before that rarely.
	if n := f.slurm.Calls().Status; n < 2 || n > 6 {
		t.Errorf("asked %d times in half a minute", n)
	}
	// What has ended is known at once.
	before := len(f.slept)
	if _, err := f.Wait(t.Context(), r.Spec.ID, nil); err != nil || len(f.slept) != before {
		t.Errorf("waited for what has ended: %v", err)
	}
}

// TestWaitLong: a job that waits for a day is not asked about every second.
func TestWaitLong(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	start := f.now()
	f.onSleep = func() {
		if f.now().Sub(start) > time.Hour {
			f.slurm.Set(r.Current().Info.Name, word(jobs.StateCancelled, "CANCELLED"))
		}
	}
	v, err := f.Wait(t.Context(), r.Spec.ID, nil)
	if err != nil || v.State != jobs.StateCancelled {
		t.Errorf("%s, %v", v.State, err)
	}
	if n := f.slurm.Calls().Status; n > 200 {
		t.Errorf("asked %d times in an hour", n)
	}
	if over := f.now().Sub(start) - time.Hour; over > 30*time.Second {
		t.Errorf("seen %v late", over)
	}
}

// TestWaitAll: however many jobs are waited for, one question is about all.
func TestWaitAll(t *testing.T) {
	f := newFixture(t)
	const many = 60
	var ids []string
	var recs []*jobs.Record
	for range many {
		r := f.submit(task(), Choice{})
		ids, recs = append(ids, r.Spec.ID), append(recs, r)
	}
	start := f.now()
	f.onSleep = func() {
		switch since := f.now().Sub(start); {
		case since > 3*time.Minute:
			for _, r := range recs {
				f.slurm.Set(r.Current().Info.Name, word(jobs.StateCancelled, "CANCELLED"))
			}
		case since > time.Minute: // some end by their own record, and not in order
			for i := 1; i < many; i += 2 {
				if r := f.load(recs[i]); r.Current().Exit == nil {
					f.exit(r, jobs.StateCompleted, 0)
				}
			}
		}
	}
	views, err := f.WaitAll(t.Context(), ids, nil)
	must(t, err)
	for i, v := range views {
		want := jobs.StateCancelled
		if i%2 == 1 {
			want = jobs.StateCompleted
		}
		if v.Record == nil || v.Spec.ID != ids[i] || v.State != want {
			t.Errorf("%d: %+v", i, v)
		}
	}
	if n := f.slurm.Calls().Status; n > 20 {
		t.Errorf("asked %d times in three minutes", n)
	}
	// Who gives up learns which have ended.
	last := f.submit(task(), Choice{})
	ctx, cancel := context.WithCancel(t.Context())
	f.onSleep = cancel
	views, err = f.WaitAll(ctx, append(ids[:2:2], last.Spec.ID), nil)
	if !errors.Is(err, context.Canceled) || views[1].State != jobs.StateCompleted || views[2].State.Final() {
		t.Errorf("%+v, %v", views, err)
	}
}

func TestWaitEnds(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	ctx, cancel := context.WithCancel(t.Context())
	f.onSleep = cancel
	v, err := f.Wait(ctx, r.Spec.ID, nil)
	if !errors.Is(err, context.Canceled) || v.State != jobs.StatePending || v.Record == nil {
		t.Errorf("%s, %v", v.State, err)
	}
	f.onSleep = func() { must(t, f.Store.Remove(r)) }
	if _, err := f.Wait(t.Context(), r.Spec.ID, nil); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Errorf("removed meanwhile: %v", err)
	}
	if _, err := f.Wait(t.Context(), "nonsense", nil); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
}

func TestCancel(t *testing.T) {
	f := newFixture(t)
	waits, other, ended := f.submit(task(), Choice{}), f.submit(at(task(), jobs.Place{Scheduler: "local"}), Choice{}), f.submit(task(), Choice{})
	f.exit(ended, jobs.StateCompleted, 0)
	views := func() []View {
		return f.Reconcile(t.Context(), []*jobs.Record{f.load(waits), f.load(ended), f.load(other)})
	}
	all := views()

	// The wish is recorded although a scheduler cannot be reached, and that
	// keeps the other from nothing.
	down := &jobs.Error{Kind: jobs.KindInfra, Msg: "slurmctld does not answer", Hint: "scontrol ping"}
	f.slurm.Queries = down
	err := f.Cancel(t.Context(), all, "alice")
	if !errors.Is(err, down) || jobs.CodeOf(err) != jobs.CodeInfra || jobs.HintOf(err) != "scontrol ping" {
		t.Errorf("%v, hint %q", err, jobs.HintOf(err))
	}
	for _, r := range []*jobs.Record{waits, other} {
		if c := f.load(r).Cancel; c == nil || c.By != "alice" || c.Version != 1 {
			t.Errorf("the wish: %+v", c)
		}
	}
	if f.load(ended).Cancel != nil {
		t.Error("an ended job was to be ended")
	}
	if n := f.queue.Calls().Cancel; n != 1 {
		t.Errorf("the queue was asked %d times", n)
	}

	f.slurm.Queries = nil
	for range 2 {
		must(t, f.Cancel(t.Context(), all, "bob"))
	}
	if c := f.load(waits).Cancel; c.By != "alice" {
		t.Errorf("the wish is now %s's", c.By)
	}
	for i, v := range views() {
		if want := []jobs.State{jobs.StateCancelled, jobs.StateCompleted, jobs.StateCancelled}[i]; v.State != want {
			t.Errorf("%d is %s, want %s", i, v.State, want)
		}
	}
	before := f.slurm.Calls().Cancel
	must(t, f.Cancel(t.Context(), views(), "bob"))
	if f.slurm.Calls().Cancel != before {
		t.Error("what is over was cancelled")
	}

	// A job of which no scheduler knows yet.
	f.slurm.LoseReplies, f.slurm.findFails = 1, -1
	r, _ := f.Submit(t.Context(), f.plan(task(), Choice{}), task())
	must(t, f.Cancel(t.Context(), f.Reconcile(t.Context(), []*jobs.Record{f.load(r)}), "alice"))
	if f.load(r).Cancel == nil {
		t.Error("the wish is not recorded")
	}

	// A wish that cannot be recorded is an error, and the scheduler hears of it
	// all the same.
	r = f.submit(task(), Choice{})
	must(t, os.Mkdir(filepath.Join(r.Dir, "cancel"), 0o700))
	err = f.Cancel(t.Context(), []View{{Record: r, State: jobs.StatePending}}, "alice")
	if jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(err.Error(), jobs.Short(r.Spec.ID)) || f.slurm.Calls().Cancel != before+1 {
		t.Errorf("%v", err)
	}
}

// newRepo is a repository with a file "a", and git in it.
func newRepo(t *testing.T) (repo string, git func(args ...string) string) {
	t.Helper()
	repo = t.TempDir()
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", repo, "-c", "user.name=a", "-c", "user.email=a@b.invalid"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	must(t, os.WriteFile(filepath.Join(repo, "a"), []byte("1\n"), 0o600))
	git("add", "a")
	git("commit", "-q", "-m", "one")
	return repo, git
}

// TestTake: a branch that the node could not bring in is brought in by the next
// verb, once.
func TestTake(t *testing.T) {
	f := newFixture(t)
	repo, git := newRepo(t)
	must(t, os.WriteFile(filepath.Join(repo, "untracked"), nil, 0o600))
	r := f.submit(task(func(w *jobs.Task) { w.Workspace = &jobs.Workspace{Repo: repo} }), Choice{})
	if len(r.Spec.Notes) != 2 || !strings.Contains(strings.Join(r.Spec.Notes, "; "), "uncommitted changes") {
		t.Errorf("%q", r.Spec.Notes)
	}
	dir, src := r.Current().Dir, sourceOf(r.Spec.Workspace)
	_, err := f.git.Prepare(t.Context(), src, dir)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "work", "a"), []byte("2\n"), 0o600))
	res, err := f.git.Collect(t.Context(), dir, src, workspace.CollectOptions{Branch: r.Spec.Workspace.Branch, Message: "two"})
	must(t, err)
	_, err = store.SetExit(dir, jobs.ExitRecord{Version: 1, State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}, Ended: f.now(),
		Result: &jobs.Result{Branch: res.Branch, Base: res.Base, Commit: res.Commit, Tree: res.Tree, TakeError: "read-only"}})
	must(t, err)

	// Not while the repository is away, which is a note.
	must(t, os.Rename(repo, repo+"-away"))
	v := f.see(r)
	if v.Current().Taken != nil || !strings.Contains(v.Note, "not in the repository yet") || !strings.Contains(v.Note, bundle(dir)) || v.State != jobs.StateCompleted {
		t.Errorf("%q", v.Note)
	}
	must(t, os.Rename(repo+"-away", repo))
	v = f.see(r)
	if v.Current().Taken == nil || v.Note != "" || v.Current().Taken.Commit != res.Commit {
		t.Errorf("%+v, %q", v.Current().Taken, v.Note)
	}
	if got := git("rev-parse", r.Spec.Workspace.Branch); got != res.Commit {
		t.Errorf("the branch is at %s", got)
	}
	// A branch that the user has removed does not come back.
	git("branch", "-q", "-D", r.Spec.Workspace.Branch)
	f.see(r)
	if got := git("branch", "--list", "berth/*"); got != "" {
		t.Errorf("%s came back", got)
	}
}

func TestSleep(t *testing.T) {
	must(t, Sleep(t.Context(), time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestCancelUntold has a client killed between the wish and the scheduler:
// whoever looks tells it.
func TestCancelUntold(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	_, err := store.SetCancel(r.Dir, jobs.Cancel{Version: 1, Time: f.now(), By: "alice"})
	must(t, err)
	f.see(r)
	if v := f.see(r); v.State != jobs.StateCancelled || f.slurm.Calls().Cancel != 1 {
		t.Errorf("%s after %+v", v.State, f.slurm.Calls())
	}
}

// TestSecretsAfterKill has whoever concluded that a job never ran killed before
// the values that it was passed were removed: the next who looks does.
func TestSecretsAfterKill(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(func(t *jobs.Task) { t.Env = []string{"TOKEN"} }), Choice{})
	path := filepath.Join(r.Current().Dir, "env")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	_, err := store.SetVerdict(r.Current().Dir, jobs.Verdict{Version: 1, State: jobs.StateLost, Time: f.now()})
	must(t, err)
	f.see(r)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error(err)
	}
}
