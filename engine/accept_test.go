package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// accept is what a runner records of a result that counts from here on.
func (f *fixture) accept(r *jobs.Record, exit jobs.ExitRecord) {
	f.t.Helper()
	a := f.load(r).Current()
	exit.Version, exit.Attempt, exit.Ended = 1, a.Info.ID, f.now()
	won, err := store.SetDecision(a.Dir, jobs.Decision{Version: 1, Attempt: a.Info.ID, Verb: jobs.VerbAccept, State: exit.State, Code: exit.Code, Reason: "it succeeded", By: "the runner", Exit: &exit, Time: f.now()})
	must(f.t, err)
	if !won {
		f.t.Fatal("another decision was first")
	}
}

// TestAccepted: a runner has accepted its result and is killed before it records
// the end. Whoever finds it gone does that in its place, whatever the scheduler
// says of it, and no one before.
func TestAccepted(t *testing.T) {
	done := jobs.ExitRecord{State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}, Node: "n1", Notes: []string{"a note"}}
	for name, c := range map[string]struct {
		word   string        // the scheduler's; "" is that it has forgotten the job
		early  time.Duration // after so long no one may say anything yet
		late   time.Duration // and after so much more it is told
		before func(f *fixture, r *jobs.Record)
		exit   jobs.ExitRecord
		want   jobs.State
		code   int
	}{
		"the node ended it":     {word: "FAILED", early: 10 * time.Second, late: 30 * time.Second, exit: done, want: jobs.StateCompleted},
		"cut off":               {word: "NODE_FAIL", early: 100 * time.Second, late: 90 * time.Second, exit: done, want: jobs.StateCompleted},
		"forgotten":             {early: 100 * time.Second, late: 90 * time.Second, exit: done, want: jobs.StateCompleted},
		"cancelled meanwhile":   {word: "CANCELLED", early: 10 * time.Second, late: 30 * time.Second, exit: done, want: jobs.StateCompleted, before: (*fixture).wish},
		"preempted":             {word: "PREEMPTED", early: 10 * time.Second, late: 30 * time.Second, exit: done, want: jobs.StateCompleted},
		"a failure":             {word: "FAILED", early: 10 * time.Second, late: 30 * time.Second, exit: jobs.ExitRecord{State: jobs.StateFailed, Code: 1, Exit: jobs.Exit{Started: true, Code: 3}, Reason: "exit code 3"}, want: jobs.StateFailed, code: 1},
		"given up, and it came": {word: "NODE_FAIL", early: 100 * time.Second, late: 90 * time.Second, exit: done, want: jobs.StateCompleted, before: (*fixture).giveUp},
	} {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			f := newFixture(t)
			r := f.submit(task(again, func(w *jobs.Task) { w.Env = []string{"TOKEN"} }), Choice{})
			n := r.Current().Info.Name
			f.slurm.Start(n)
			f.claim(r)
			if c.before != nil {
				c.before(f, r)
			}
			f.accept(r, c.exit)
			if rec := f.load(r); jobs.StateOf(rec) != jobs.StateRunning || jobs.AtRest(rec) || jobs.Next(rec, nil, f.now()).Do != jobs.DoNothing {
				t.Errorf("its runner is at work on it, and it is %s", jobs.StateOf(rec))
			}
			if c.word == "" {
				f.slurm.Forget(n)
			} else {
				f.slurm.Set(n, jobs.Status{State: jobs.StateError, NativeState: c.word})
			}
			f.pass(c.early)
			if v := f.see(r); v.State != jobs.StateRunning || v.Current().Exit != nil {
				t.Fatalf("after %v it is %s", c.early, v.State)
			}
			f.pass(c.late)
			v := f.see(r)
			a := v.Current()
			if v.State != c.want || len(v.Attempts) != 1 || a.Exit == nil || a.Exit.State != c.want || jobs.CodeOfRecord(v.Record) != c.code {
				t.Fatalf("%s: %+v", v.State, a)
			}
			if a.Exit.Exit != c.exit.Exit || a.Exit.Node != c.exit.Node || a.Exit.Reason != c.exit.Reason || !slices.ContainsFunc(a.Exit.Notes, func(s string) bool { return strings.Contains(s, "accepted") }) {
				t.Errorf("%+v", a.Exit)
			}
			if _, err := os.Stat(filepath.Join(a.Dir, "env")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("passed values: %v", err)
			}
			if f.pass(time.Hour); f.see(r).State != c.want || len(f.launches()) > 1 || !jobs.AtRest(f.load(r)) {
				t.Error("later it is something else")
			}
			if won, err := store.SetExit(a.Dir, jobs.ExitRecord{Version: 1, State: jobs.StateError}); won || err != nil {
				t.Errorf("the runner came back, and its word counts: %v", err)
			}
		})
	}
}

// wish has someone ask for the job's end.
func (f *fixture) wish(r *jobs.Record) {
	f.t.Helper()
	_, err := store.SetCancel(r.Dir, jobs.Cancel{Version: 1})
	must(f.t, err)
}

// giveUp has the runner called gone, before it comes back.
func (f *fixture) giveUp(r *jobs.Record) {
	f.t.Helper()
	_, err := store.SetVerdict(r.Current().Dir, jobs.Verdict{Version: 1, State: jobs.StateLost, Reason: "silent"})
	must(f.t, err)
}

// TestAcceptedMeanwhile: it is accepted between the look and the verdict.
func TestAcceptedMeanwhile(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again), Choice{})
	n := r.Current().Info.Name
	f.slurm.Start(n)
	f.claim(r)
	f.slurm.Set(n, jobs.Status{State: jobs.StateError, NativeState: "FAILED"})
	f.pass(time.Minute)
	f.slurm.onStatus = func() { f.accept(r, jobs.ExitRecord{State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}}) }
	if v := f.see(r); v.State != jobs.StateCompleted || v.Current().Verdict != nil || len(v.Attempts) != 1 {
		t.Errorf("%s: %+v", v.State, v.Current())
	}
}

// TestAcceptedBranch: what was accepted is brought in, whether its runner was
// killed before or after it had done so; without its bundle it is no success.
func TestAcceptedBranch(t *testing.T) {
	for name, c := range map[string]struct {
		delivered, bundle bool
		want              jobs.State
	}{
		"before":         {false, true, jobs.StateCompleted},
		"after":          {true, true, jobs.StateCompleted},
		"without bundle": {false, false, jobs.StateError},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			repo, _ := newRepo(t)
			r := f.submit(task(again, func(w *jobs.Task) { w.Workspace = &jobs.Workspace{Repo: repo} }), Choice{})
			dir, src := r.Current().Dir, sourceOf(r.Spec.Workspace)
			f.slurm.Start(r.Current().Info.Name)
			f.claim(r)
			_, err := f.git.Prepare(t.Context(), src, dir)
			must(t, err)
			must(t, os.WriteFile(filepath.Join(dir, "work", "a.txt"), []byte("new"), 0o600))
			res, err := f.git.Collect(t.Context(), dir, src, workspace.CollectOptions{Branch: r.Spec.Workspace.Branch, Message: "m"})
			must(t, err)
			if c.delivered {
				must(t, f.git.Intake(t.Context(), src, bundle(dir), r.Spec.Workspace.Branch, res))
			}
			f.accept(r, jobs.ExitRecord{State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}, Result: &jobs.Result{Branch: res.Branch, Base: res.Base, Commit: res.Commit, Tree: res.Tree, Files: 1}})
			if !c.bundle {
				must(t, os.Remove(bundle(dir)))
			}
			f.slurm.Set(r.Current().Info.Name, jobs.Status{State: jobs.StateError, NativeState: "FAILED"})
			f.pass(time.Minute)
			v := f.see(r)
			if v.State != c.want || v.BranchHere() != c.bundle {
				t.Fatalf("%s, here %v: %s", v.State, v.BranchHere(), v.Note)
			}
			if !c.bundle && (!strings.Contains(v.Current().Exit.Reason, "bundle") || jobs.CodeOfRecord(v.Record) == 0) {
				t.Errorf("%+v", v.Current().Exit)
			}
			if again := f.see(r); again.State != c.want || again.BranchHere() != c.bundle {
				t.Errorf("later it is %s", again.State)
			}
		})
	}
}
