package engine

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
)

// again is a task that may be tried again.
func again(t *jobs.Task) { t.Retry = jobs.DefaultRetry() }

// end is the last word of a runner.
func (f *fixture) end(r *jobs.Record, e jobs.ExitRecord) {
	f.t.Helper()
	f.claim(r)
	e.Version, e.Ended = 1, f.now()
	_, err := store.SetExit(r.Current().Dir, e)
	must(f.t, err)
}

var oom = jobs.ExitRecord{State: jobs.StateOutOfMemory, Code: 1, MaxRSS: 900 * jobs.MiB}

func gib(t *jobs.Task) { t.Resources.Memory = jobs.GiB }

// TestFollow tries a job again with what it lacked, until it has it.
func TestFollow(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again, gib), Choice{})
	f.end(r, oom)
	v := f.see(r)
	if v.State != jobs.StatePending || len(v.Attempts) != 2 || v.Current().Submitted == nil || v.Current().Info.Number != 2 {
		t.Fatalf("%s: %+v", v.State, v.Attempts)
	}
	d := v.Attempts[0].Decision
	if d == nil || d.Verb != jobs.VerbRetry || d.Class != jobs.ClassMemory || d.By == "" || !strings.Contains(strings.Join(d.Evidence, "\n"), "peak memory: 900 MiB") {
		t.Fatalf("%+v", d)
	}
	launches := f.launches()
	if len(launches) != 2 || launches[0].Resources.Memory != jobs.GiB || launches[1].Resources.Memory != 1536*jobs.MiB || launches[1].Name == launches[0].Name || launches[1].Dir != v.Current().Dir {
		t.Fatalf("%+v", launches)
	}
	// Looking again changes nothing.
	if v = f.see(r); len(v.Attempts) != 2 || len(f.launches()) != 2 {
		t.Fatalf("%+v", v.Attempts)
	}
	f.end(v.Record, jobs.ExitRecord{State: jobs.StateCompleted})
	v = f.see(r)
	if v.State != jobs.StateCompleted || jobs.CodeOfRecord(v.Record) != 0 || v.Current().Decision == nil || v.Current().Decision.Verb != jobs.VerbAccept {
		t.Fatalf("%s: %+v", v.State, v.Current())
	}
}

// TestFollowRunsOut ends with the last failure, and its code.
func TestFollowRunsOut(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again, gib), Choice{})
	for range 3 {
		f.end(f.load(r), oom)
		f.see(r)
	}
	v := f.see(r)
	if v.State != jobs.StateOutOfMemory || len(v.Attempts) != 3 || jobs.CodeOfRecord(v.Record) != 1 {
		t.Fatalf("%s after %d", v.State, len(v.Attempts))
	}
	var asked []jobs.Bytes
	for _, l := range f.launches() {
		asked = append(asked, l.Resources.Memory)
	}
	if len(asked) != 3 || asked[1] != 1536*jobs.MiB || asked[2] != 2304*jobs.MiB {
		t.Error(asked)
	}
}

// TestFollowRace has many clients look at once: one attempt follows.
func TestFollowRace(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again, gib), Choice{})
	f.end(r, oom)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			rec, err := f.Store.Load(r.Spec.ID)
			if err != nil {
				t.Error(err)
				return
			}
			f.Reconcile(t.Context(), []*jobs.Record{rec})
		})
	}
	wg.Wait()
	v := f.see(r)
	if len(v.Attempts) != 2 || len(f.launches()) != 2 || v.Current().Submitted == nil {
		t.Fatalf("%d attempts, %d launches", len(v.Attempts), len(f.launches()))
	}
}

// TestFollowExcluded keeps away from a node that has failed, unless nothing would
// be left; then the first cause is told, and not what the scheduler said of that.
func TestFollowExcluded(t *testing.T) {
	for name, refuses := range map[string]func(exclude string) bool{
		"others left": func(string) bool { return false },
		"none left":   func(exclude string) bool { return exclude == "n1" },
		"refused":     func(string) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r := f.submit(task(again), Choice{})
			_, err := store.SetClaim(r.Current().Dir, jobs.Claim{Version: 1, Attempt: r.Current().Info.ID, Host: "n1", Node: "n1", PID: 7, Time: f.now()})
			must(t, err)
			_, err = store.SetExit(r.Current().Dir, jobs.ExitRecord{Version: 1, Ended: f.now(), State: jobs.StateError, Code: 5, Class: jobs.ClassInfra, Blame: jobs.BlameNode, Reason: "the disk of n1 is full"})
			must(t, err)
			f.slurm.Fault(func(s *jobstest.FakeScheduler) {
				s.Submits = func(l jobs.Launch) error {
					if refuses(strings.Join(l.Exclude, " ")) {
						return &jobs.Error{Kind: jobs.KindRejected, Msg: "Slurm refused the job: Requested node configuration is not available", Hint: "ask for less"}
					}
					return nil
				}
			})
			v := f.see(r)
			last := v.Current()
			if len(v.Attempts) != 2 {
				t.Fatalf("%s %q: %+v", v.State, v.Note, v.Attempts)
			}
			script, err := os.ReadFile(store.ScriptPath(last.Dir))
			must(t, err)
			switch name {
			case "others left":
				if v.State != jobs.StatePending || len(last.Info.Change.Exclude) != 1 {
					t.Errorf("%s: %+v", v.State, last)
				}
			case "none left":
				if v.State != jobs.StatePending || last.Submitted == nil || len(last.Info.Change.Exclude) != 0 || strings.Contains(string(script), "--exclude") {
					t.Errorf("%s: %+v", v.State, last)
				}
			default:
				if v.State != jobs.StateError || !strings.HasPrefix(last.Verdict.Reason, "the disk of n1 is full; and the next attempt was refused: ") {
					t.Errorf("%s: %+v", v.State, last.Verdict)
				}
			}
			l := f.launches()
			if got := l[len(l)-1].Wait; name != "refused" && (got < 25*time.Second || got > 30*time.Second) {
				t.Errorf("held back for %v", got)
			}
		})
	}
}

// TestFollowRefused ends with the scheduler's words.
func TestFollowRefused(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again, gib), Choice{})
	f.end(r, oom)
	f.slurm.Fault(func(s *jobstest.FakeScheduler) {
		s.Submits = func(jobs.Launch) error {
			return &jobs.Error{Kind: jobs.KindRejected, Msg: "Slurm refused the job: Memory specification can not be satisfied", Hint: "ask for less"}
		}
	})
	v := f.see(r)
	if v.State != jobs.StateError || len(v.Attempts) != 2 || !strings.Contains(v.Current().Verdict.Reason, "Memory specification") || v.Current().Decision.Class != jobs.ClassPolicy {
		t.Fatalf("%s: %+v", v.State, v.Current())
	}
}

// TestFollowLater takes an attempt back that the scheduler did not get, and the
// next who looks begins it.
func TestFollowLater(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again, gib), Choice{})
	f.end(r, oom)
	f.slurm.Fault(func(s *jobstest.FakeScheduler) {
		s.Submits = func(jobs.Launch) error {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "Slurm's controller does not answer; nothing was submitted"}
		}
	})
	for range 2 {
		v := f.see(r)
		if v.State != jobs.StatePending || len(v.Attempts) != 1 || !strings.Contains(v.Note, "could not be submitted") {
			t.Fatalf("%s, %d attempts, note %q", v.State, len(v.Attempts), v.Note)
		}
	}
	f.slurm.Fault(func(s *jobstest.FakeScheduler) { s.Submits = nil })
	if v := f.see(r); len(v.Attempts) != 2 || v.Current().Submitted == nil {
		t.Fatalf("%+v", v.Attempts)
	}
}

// TestFollowUnclear finds an attempt that the scheduler took without a word.
func TestFollowUnclear(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again, gib), Choice{})
	f.end(r, oom)
	f.slurm.Fault(func(s *jobstest.FakeScheduler) { s.LoseReplies = 1 })
	v := f.see(r)
	if len(v.Attempts) != 2 || v.Current().Submitted == nil || len(f.launches()) != 2 {
		t.Fatalf("%+v, note %q", v.Attempts, v.Note)
	}
}

// TestFollowEnded asks the scheduler why it ended an attempt.
func TestFollowEnded(t *testing.T) {
	for name, c := range map[string]struct {
		word     jobs.Status
		forget   bool
		attempts int
		state    jobs.State
	}{
		"preempted":  {word: jobs.Status{State: jobs.StateError, NativeState: "PREEMPTED"}, attempts: 2, state: jobs.StatePending},
		"node":       {word: jobs.Status{State: jobs.StateError, NativeState: "NODE_FAIL"}, attempts: 2, state: jobs.StatePending},
		"scancelled": {word: jobs.Status{State: jobs.StateCancelled, NativeState: "CANCELLED", Reason: "by 0"}, attempts: 1, state: jobs.StateCancelled},
		"completing": {word: jobs.Status{State: jobs.StateRunning, NativeState: "COMPLETING"}, attempts: 1, state: jobs.StatePending},
		"forgotten":  {forget: true, attempts: 1, state: jobs.StateCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r := f.submit(task(again), Choice{})
			f.end(r, jobs.ExitRecord{State: jobs.StateCancelled, Class: jobs.ClassEnded, Code: 130})
			if c.forget {
				f.slurm.Forget(r.Current().Info.Name)
				if v := f.see(r); v.State != jobs.StatePending {
					t.Fatalf("at once %s", v.State)
				}
				f.pass(settle)
			} else {
				f.slurm.Set(r.Current().Info.Name, c.word)
			}
			v := f.see(r)
			if v.State != c.state || len(v.Attempts) != c.attempts {
				t.Errorf("%s, %d attempts: %+v", v.State, len(v.Attempts), v.Attempts[0].Decision)
			}
		})
	}
}

// TestFollowCancelled begins nothing that someone has ended meanwhile.
func TestFollowCancelled(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again, gib), Choice{})
	f.end(r, oom)
	f.slurm.Fault(func(s *jobstest.FakeScheduler) {
		s.Submits = func(jobs.Launch) error { return &jobs.Error{Kind: jobs.KindInfra, Msg: "down"} }
	})
	f.see(r)
	f.slurm.Fault(func(s *jobstest.FakeScheduler) { s.Submits = nil })
	_, err := store.SetCancel(r.Dir, jobs.Cancel{Version: 1, Time: f.now()})
	must(t, err)
	v := f.see(r)
	if v.State != jobs.StateCancelled || len(f.launches()) != 1 || jobs.CodeOfRecord(v.Record) != jobs.CodeInterrupted {
		t.Fatalf("%s: %+v", v.State, v.Attempts)
	}
}

// TestFollowSilent tries again what was lost with its node, and a late record
// changes nothing.
func TestFollowSilent(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again), Choice{})
	f.claim(r)
	f.slurm.Set(r.Current().Info.Name, jobs.Status{State: jobs.StateError, NativeState: "NODE_FAIL"})
	f.pass(silent(&jobs.Spec{}))
	v := f.see(r)
	if v.State != jobs.StatePending || len(v.Attempts) != 2 || v.Attempts[0].Decision.Class != jobs.ClassNode {
		t.Fatalf("%s: %+v", v.State, v.Attempts)
	}
	_, err := store.SetExit(v.Attempts[0].Dir, jobs.ExitRecord{Version: 1, State: jobs.StateCompleted, Ended: f.now()})
	must(t, err)
	if v = f.see(r); v.State != jobs.StatePending || len(v.Attempts) != 2 {
		t.Fatalf("a late record: %s", v.State)
	}
	f.end(v.Record, jobs.ExitRecord{State: jobs.StateFailed, Code: 1, Exit: jobs.Exit{Started: true, Code: 9}})
	if v = f.see(r); v.State != jobs.StateFailed || jobs.CodeOfRecord(v.Record) != 1 {
		t.Fatalf("%s", v.State)
	}
}

// TestFollowLocally waits with what failed here, and does not hurry.
func TestFollowLocally(t *testing.T) {
	f := newFixture(t)
	r := f.submit(at(task(again), jobs.Place{Scheduler: jobs.SchedulerLocal}), Choice{})
	f.end(r, jobs.ExitRecord{State: jobs.StateError, Code: 5})
	if v := f.see(r); v.State != jobs.StatePending || len(v.Attempts) != 1 || !strings.Contains(v.Note, "tried again after") {
		t.Fatalf("%s, %d attempts, note %q", v.State, len(v.Attempts), v.Note)
	}
	f.pass(time.Minute)
	if v := f.see(r); len(v.Attempts) != 2 || v.Current().Submitted == nil {
		t.Fatalf("%+v", v.Attempts)
	}
}

// TestFollowBranch: an attempt that is not accepted brings no branch into the
// repository, where it would stand in the way of the one that is.
func TestFollowBranch(t *testing.T) {
	f := newFixture(t)
	repo, git := newRepo(t)
	r := f.submit(task(again, gib, func(w *jobs.Task) { w.Workspace = &jobs.Workspace{Repo: repo} }), Choice{})
	collect := func(r *jobs.Record, e jobs.ExitRecord) string {
		t.Helper()
		dir, src := r.Current().Dir, sourceOf(r.Spec.Workspace)
		f.claim(r)
		_, err := f.git.Prepare(t.Context(), src, dir)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "work", "a.txt"), []byte(r.Current().Info.ID), 0o600))
		res, err := f.git.Collect(t.Context(), dir, src, workspace.CollectOptions{Branch: r.Spec.Workspace.Branch, Message: "m"})
		must(t, err)
		e.Version, e.Ended = 1, f.now()
		e.Result = &jobs.Result{Branch: res.Branch, Base: res.Base, Commit: res.Commit, Tree: res.Tree}
		_, err = store.SetExit(dir, e)
		must(t, err)
		return res.Commit
	}
	collect(r, oom)
	f.slurm.Fault(func(s *jobstest.FakeScheduler) {
		s.Submits = func(jobs.Launch) error { return &jobs.Error{Kind: jobs.KindInfra, Msg: "down"} }
	})
	if v := f.see(r); v.Current().N != 1 || v.Current().Taken != nil || git("branch", "--list", "berth/*") != "" {
		t.Fatalf("the branch of an attempt that is tried again: %+v, %s", v.Current(), git("branch", "--list", "berth/*"))
	}
	f.slurm.Fault(func(s *jobstest.FakeScheduler) { s.Submits = nil })
	v := f.see(r)
	if v.Current().N != 2 {
		t.Fatalf("%+v", v.Current())
	}
	commit := collect(v.Record, jobs.ExitRecord{State: jobs.StateCompleted})
	if v = f.see(r); v.State != jobs.StateCompleted || v.Current().Taken == nil || git("rev-parse", r.Spec.Workspace.Branch) != commit {
		t.Errorf("%s %q: %+v", v.State, v.Note, v.Current())
	}
}

// TestFollowHalfAccepted: a success whose runner was killed after it was
// accepted, and before it counted, is none where it left no word of its end with
// the decision, as an earlier berth did; nor is one that could not be kept.
func TestFollowHalfAccepted(t *testing.T) {
	for name, after := range map[string]func(f *fixture, r *jobs.Record){
		"killed": func(f *fixture, _ *jobs.Record) { f.pass(silent(&jobs.Spec{})) },
		"failed": func(f *fixture, r *jobs.Record) { f.exit(r, jobs.StateError, jobs.CodeInfra) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r := f.submit(task(again, func(w *jobs.Task) { w.Env = []string{"TOKEN"} }), Choice{})
			f.claim(r)
			_, err := store.SetDecision(r.Current().Dir, jobs.Decision{Version: 1, Attempt: r.Current().Info.ID, Verb: jobs.VerbAccept, State: jobs.StateCompleted, Time: f.now()})
			must(t, err)
			after(f, r)
			f.slurm.Set(r.Current().Info.Name, jobs.Status{State: jobs.StateFailed, NativeState: "NODE_FAIL"})
			v := f.see(r)
			if _, err := os.Stat(filepath.Join(r.Current().Dir, "env")); err == nil {
				f.see(r)
				if _, err := os.Stat(filepath.Join(r.Current().Dir, "env")); err == nil {
					t.Error("its secrets stay for ever")
				}
			}
			if (v.State != jobs.StateError && v.State != jobs.StateLost) || jobs.CodeOfRecord(v.Record) != jobs.CodeInfra || len(v.Attempts) != 1 {
				t.Errorf("%s, code %d: %+v", v.State, jobs.CodeOfRecord(v.Record), v.Current())
			}
		})
	}
}
