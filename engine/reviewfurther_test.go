package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// twoRepos is a job that has changed two repositories, whose results are there.
func twoRepos(t *testing.T) (f *fixture, r *jobs.Record, app, lib func(...string) string) {
	t.Helper()
	f, r, all, app, lib := twoEnded(t)
	v := f.see(r)
	if !v.BranchHere() || app("rev-parse", r.Spec.Workspace.Branch) != all.Commit || lib("rev-parse", r.Spec.Workspace.Branch) != all.Further[0].Commit {
		t.Fatalf("%+v, %q", v.Current(), v.Note)
	}
	return f, v.Record, app, lib
}

// twoEnded is the same before its branches are delivered.
func twoEnded(t *testing.T) (f *fixture, r *jobs.Record, all jobs.Result, app, lib func(...string) string) {
	t.Helper()
	f = newFixture(t)
	f.environ["PATH"], f.environ["HOME"] = os.Getenv("PATH"), t.TempDir()
	first, app := newRepo(t)
	second, lib := newRepo(t)
	r = f.submit(task(func(w *jobs.Task) {
		w.Workspace = &jobs.Workspace{Repo: first}
		w.Further = []jobs.Workspace{{Name: "lib", Repo: second, Scope: []string{"a"}}}
	}), Choice{})
	dir := r.Current().Dir
	for _, w := range r.Spec.Workspaces() {
		git := *f.git
		git.Work = filepath.Join(dir, workspace.WorkDir)
		if git.Below = jobs.WorkspaceDir(w.Name); w.Name == "" {
			git.Others = []string{jobs.WorkspaceDir("lib")}
		}
		p, err := git.Prepare(t.Context(), sourceOf(w), jobs.ResultDir(dir, w.Name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(p.Work, "a"), []byte("2"+w.Name+"\n"), 0o600))
	}
	for _, w := range r.Spec.Workspaces() {
		git := *f.git
		git.Work = filepath.Join(dir, workspace.WorkDir)
		if git.Below = jobs.WorkspaceDir(w.Name); w.Name == "" {
			git.Others = []string{jobs.WorkspaceDir("lib")}
		}
		res, err := git.Collect(t.Context(), jobs.ResultDir(dir, w.Name), sourceOf(w), workspace.CollectOptions{Branch: w.Branch, Message: "two"})
		must(t, err)
		if len(res.Files) != 1 || len(res.Skipped) != 0 {
			t.Fatalf("%+v", res)
		}
		if one := res.Record(); w.Name == "" {
			all = one
		} else {
			one.Workspace = w.Name
			all.Further = append(all.Further, one)
		}
	}
	_, err := store.SetExit(dir, jobs.ExitRecord{Version: 1, State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}, Ended: f.now(), Result: &all})
	must(t, err)
	return f, r, all, app, lib
}

// The branch of one repository is delivered though that of another one cannot be, whichever
// it is; the other follows when it can.
func TestDeliveryOfTwo(t *testing.T) {
	for at, name := range []string{"the first away", "the further away"} {
		t.Run(name, func(t *testing.T) {
			f, r, all, app, lib := twoEnded(t)
			away, here := r.Spec.Workspaces()[at].Repo, lib
			want, branch := all.Further[0].Commit, r.Spec.Workspace.Branch
			if at == 1 {
				here, want = app, all.Commit
			}
			must(t, os.Rename(away, away+"-away"))
			v := f.see(r)
			if got := here("rev-parse", branch); got != want {
				t.Errorf("the other branch is %q", got)
			}
			if v.BranchHere() || !strings.Contains(v.Note, "not in the repository yet") || !strings.Contains(v.Note, away) || strings.Contains(v.Note, "workspace lib") != (at == 1) {
				t.Errorf("%q", v.Note)
			}
			must(t, os.Rename(away+"-away", away))
			v = f.see(r)
			if !v.BranchHere() || v.Note != "" || app("rev-parse", branch) != all.Commit || lib("rev-parse", branch) != all.Further[0].Commit {
				t.Errorf("%q", v.Note)
			}
		})
	}
}

// A merge of two repositories that was killed after any of its steps goes on where it can,
// and moves no other one where one target is elsewhere.
func TestMergeOfTwoGoesOn(t *testing.T) {
	files := func(git func(...string) string, m *jobs.ReviewMerge) { git("read-tree", "-m", "-u", m.Old, m.New) }
	moved := func(git func(...string) string, m *jobs.ReviewMerge) { git("merge", "-q", "--ff-only", m.New) }
	away := func(git func(...string) string) { git("commit", "-q", "--allow-empty", "-m", "other") }
	type gits = func(...string) string
	for name, c := range map[string]struct {
		do   func(m *jobs.ReviewMerge, app, lib gits)
		want string // in the error; "" is that both are merged
	}{
		"nothing":          {func(*jobs.ReviewMerge, gits, gits) {}, ""},
		"files of one":     {func(m *jobs.ReviewMerge, app, _ gits) { files(app, m) }, ""},
		"one":              {func(m *jobs.ReviewMerge, app, _ gits) { moved(app, m) }, ""},
		"one and files":    {func(m *jobs.ReviewMerge, app, lib gits) { moved(app, m); files(lib, &m.Further[0]) }, ""},
		"both":             {func(m *jobs.ReviewMerge, app, lib gits) { moved(app, m); moved(lib, &m.Further[0]) }, ""},
		"first elsewhere":  {func(_ *jobs.ReviewMerge, app, _ gits) { away(app) }, "merged: none; not merged: the first workspace, lib"},
		"second elsewhere": {func(_ *jobs.ReviewMerge, _, lib gits) { away(lib) }, "merged: none; not merged: the first workspace, lib"},
		"files and second elsewhere": {func(m *jobs.ReviewMerge, app, lib gits) { files(app, m); away(lib) },
			"merged: none; not merged: the first workspace, lib"},
		"one and second elsewhere": {func(m *jobs.ReviewMerge, app, lib gits) { moved(app, m); away(lib) },
			"merged: the first workspace; not merged: lib"},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, app, lib := twoRepos(t)
			_, err := f.Approve(t.Context(), r, ApproveOptions{Unchecked: true})
			must(t, err)
			var m *jobs.ReviewMerge
			must(t, f.reviewed(t.Context(), r, "", func(rv *Review, _ *under) error {
				for _, p := range rv.All() {
					one, err := f.planMerge(t.Context(), p, p.Reviews.Verdict(), MergeOptions{})
					must(t, err)
					if m == nil {
						m = one
					} else {
						m.Further = append(m.Further, *one)
					}
				}
				return nil
			}))
			_, err = store.SetMerge(r.Dir, 1, *m)
			must(t, err)
			list, err := f.ListReviews(t.Context(), false)
			if err != nil || len(list.Items) != 1 || list.Items[0].State != ReviewUnfinished || len(list.Items[0].Record.Spec.Further) != 1 {
				t.Fatalf("%+v, %v", list, err)
			}
			c.do(m, app, lib)
			was := app("rev-parse", "main") + lib("rev-parse", "main")
			_, err = f.MergeReview(t.Context(), r, MergeOptions{})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || jobs.CodeOf(err) != jobs.CodeUsage {
					t.Fatalf("%v", err)
				}
				if now := app("rev-parse", "main") + lib("rev-parse", "main"); now != was {
					t.Error("a target moved though another one was elsewhere")
				}
				// What is merged stays, and the rest can be approved and merged again.
				_, err = f.Approve(t.Context(), r, ApproveOptions{Unchecked: true})
				must(t, err)
				_, err = f.MergeReview(t.Context(), r, MergeOptions{})
			}
			must(t, err)
			if app("show", "main:a") != "2" || lib("show", "main:a") != "2lib" || app("status", "--porcelain")+lib("status", "--porcelain") != "" {
				t.Errorf("%q %q", app("status"), lib("status"))
			}
			again, err := f.MergeReview(t.Context(), r, MergeOptions{})
			if err != nil || len(again.All()) != 2 {
				t.Errorf("%+v, %v", again, err)
			}
			if rv, err := f.Review(t.Context(), r, ""); err != nil || rv.State != ReviewMerged {
				t.Errorf("%+v, %v", rv, err)
			}
		})
	}
}

// Nothing moves where one of two is not as it was approved, or could not move.
func TestMergeOfTwoIsWhole(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(f *fixture, r *jobs.Record, lib func(...string) string)
		want string
	}{
		"not approved": {func(*fixture, *jobs.Record, func(...string) string) {}, "is not approved"},
		"of one alone": {func(f *fixture, r *jobs.Record, _ func(...string) string) {
			rv, err := f.Review(context.Background(), r, "")
			if err == nil {
				rv.Further = nil
				err = rv.decide(f.verdict(context.Background(), rv, rv.under, jobs.VerdictApprove, ""))
			}
			if err != nil {
				panic(err)
			}
		}, "workspace lib"},
		"pushed to": {func(f *fixture, r *jobs.Record, lib func(...string) string) {
			if _, err := f.Approve(context.Background(), r, ApproveOptions{Unchecked: true}); err != nil {
				panic(err)
			}
			lib("branch", "-f", r.Spec.Workspace.Branch, "main")
		}, "it was changed after the job"},
		"target moved": {func(f *fixture, r *jobs.Record, lib func(...string) string) {
			if _, err := f.Approve(context.Background(), r, ApproveOptions{Unchecked: true}); err != nil {
				panic(err)
			}
			lib("rm", "-q", "a")
			lib("commit", "-q", "-m", "gone")
		}, "main moved from"},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, app, lib := twoRepos(t)
			was := app("rev-parse", "main")
			c.do(f, r, lib)
			now := lib("rev-parse", "main")
			_, err := f.MergeReview(t.Context(), r, MergeOptions{})
			if err == nil || !strings.Contains(err.Error(), c.want) || jobs.CodeOf(err) != jobs.CodeUsage {
				t.Errorf("%v", err)
			}
			if app("rev-parse", "main") != was || lib("rev-parse", "main") != now {
				t.Error("a target was moved")
			}
			if rs, err := store.LoadReviews(r.Dir); err != nil || len(rs.Merges) != 0 {
				t.Errorf("%+v, %v", rs, err)
			}
		})
	}
}

// Another try of a job starts a further workspace from where the job did, and is no way out of a
// conflict there.
func TestConflictOfFurther(t *testing.T) {
	f, r, app, lib := twoRepos(t)
	for _, git := range []func(...string) string{app, lib} {
		git("rm", "-q", "a")
		git("commit", "-q", "-m", "gone")
	}
	rv, err := f.Review(t.Context(), r, "")
	must(t, err)
	for _, p := range rv.All() {
		want := "merge it by hand, or have it made again from there: berth retry " + jobs.Short(r.Spec.ID) + " --base main"
		if p.Workspace != "" {
			want = "merge it by hand, or submit the task again"
		}
		if p.Problem == nil || jobs.HintOf(p.Problem) != want {
			t.Errorf("%q: %+v", p.Workspace, p.Problem)
		}
	}
}

// Where several workspaces are not built they are refused, and not dropped.
func TestFurtherRefused(t *testing.T) {
	with := &jobs.Spec{Further: []jobs.WorkspaceSpec{{Name: "lib"}}}
	for want, change := range map[string]func(*jobs.Spec){
		"--login":            func(s *jobs.Spec) { s.Login = &jobs.SSHSpec{Host: "h"} },
		"backend modal":      func(s *jobs.Spec) { s.Backend = "modal" },
		"backend ssh":        func(s *jobs.Spec) { s.Backend = jobs.BackendSSH },
		"ntasks above 1":     func(s *jobs.Spec) { s.Resources.Tasks = 2 },
		"[resume]":           func(s *jobs.Spec) { s.Resume = &jobs.Resume{} },
		"[submit] max_jobs":  func(s *jobs.Spec) { s.Submit = &jobs.Submit{MaxJobs: 1} },
		"backend of program": func(s *jobs.Spec) { s.Backend = "of program" },
	} {
		s := *with
		s.Backend = jobs.BackendLocal
		if err := settleFurther(&s); err != nil {
			t.Errorf("%v", err)
		}
		change(&s)
		if err := settleFurther(&s); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
