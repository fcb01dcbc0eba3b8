package engine

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/workspace/review"
	"berth/jobs"
	"berth/jobs/store"
)

// answerFile is a file with a verdict on a job, as anyone could write it.
func answerFile(t *testing.T, a jobs.ReviewAnswer) string {
	t.Helper()
	data, err := json.Marshal(a)
	must(t, err)
	path := filepath.Join(t.TempDir(), "answer.tar")
	_, err = review.Pack(path, review.KindVerdict, time.Now(), []review.Packed{{Name: review.AnswerName, Data: data}})
	must(t, err)
	return path
}

// A verdict from elsewhere is recorded only where it is about what would be merged.
func TestImportVerdict(t *testing.T) {
	f, r, _, git := reviewing(t)
	res := r.Current().Result()
	good := func() jobs.ReviewAnswer {
		return jobs.ReviewAnswer{Version: 1, Job: r.Spec.ID, Verdict: jobs.ReviewVerdict{Version: 1, Verdict: jobs.VerdictApprove, Commit: res.Commit, Tree: res.Tree,
			Onto: res.Base, Ref: "refs/heads/main", By: "bob", Host: "far", Git: "Bob <bob@example.org>", Time: time.Now(), Note: "a\x1b[31mb\nc"}}
	}
	git("branch", "release")
	for name, c := range map[string]struct {
		edit func(*jobs.ReviewAnswer)
		want string
	}{
		"another commit": {func(a *jobs.ReviewAnswer) { a.Verdict.Commit = res.Base }, "and the result of job"},
		"another tree":   {func(a *jobs.ReviewAnswer) { a.Verdict.Tree = strings.Repeat("1", 40) }, "approves tree 111111111111, and the merge of job"},
		"another branch": {func(a *jobs.ReviewAnswer) { a.Verdict.Ref = "refs/heads/release" }, "for release, and it is for main"},
		"no commit here": {func(a *jobs.ReviewAnswer) { a.Verdict.Onto = strings.Repeat("2", 40) }, "has no commit 2222"},
		"an option":      {func(a *jobs.ReviewAnswer) { a.Verdict.Onto = "--help" }, `"--help" is no commit or tree`},
		"another word":   {func(a *jobs.ReviewAnswer) { a.Verdict.Verdict = "merge" }, `its verdict is "merge"`},
		"no name":        {func(a *jobs.ReviewAnswer) { a.Verdict.By = "" }, "does not say who"},
		"a long name":    {func(a *jobs.ReviewAnswer) { a.Verdict.By = strings.Repeat("x", 2000) }, "none of one line"},
		"lines":          {func(a *jobs.ReviewAnswer) { a.Verdict.Host = "a\nb" }, "none of one line"},
		"several": {func(a *jobs.ReviewAnswer) {
			a.Verdict.Workspace = "x"
			a.Verdict.Further = []jobs.ReviewTree{{Commit: res.Commit, Tree: res.Tree, Onto: res.Base, Ref: "refs/heads/release"}}
		}, `is about the workspaces ["x" ""], and job`},
		"twice": {func(a *jobs.ReviewAnswer) {
			a.Verdict.Further = []jobs.ReviewTree{{Commit: res.Commit, Tree: res.Tree, Onto: res.Base, Ref: "refs/heads/release"}}
		}, `names the workspace "" twice`},
		"another job": {func(a *jobs.ReviewAnswer) { a.Job = "../../x" }, "is no id of a job"},
		"unknown job": {func(a *jobs.ReviewAnswer) { a.Job = strings.Replace(a.Job, "7", "8", 1) }, "which is not here"},
		"newer":       {func(a *jobs.ReviewAnswer) { a.Version = 3 }, "newer berth"},
	} {
		a := good()
		c.edit(&a)
		if _, err := f.ImportReview(t.Context(), answerFile(t, a), ImportOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := good()
	a.Verdict.Onto = strings.Repeat("2", 40)
	_, err := f.ImportReview(t.Context(), answerFile(t, a), ImportOptions{})
	if hint := jobs.HintOf(err); jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(hint, "it is what main was where it was approved: git fetch, or berth review export") {
		t.Errorf("no commit here: %v, %s", err, hint)
	}
	if rs, err := store.LoadReviews(r.Dir); err != nil || len(rs.Verdicts) != 1 {
		t.Fatalf("%d verdicts, %v", len(rs.Verdicts), err)
	}
	rv, err := f.ImportReview(t.Context(), answerFile(t, good()), ImportOptions{})
	must(t, err)
	if v := rv.Reviews.Verdict(); v.By != "bob" || v.Note != "a [31mb\nc" || v.Imported == nil || v.Imported.By == "" || rv.State != ReviewApproved {
		t.Errorf("%+v %s", v, rv.State)
	}
	// The target moves: what was approved is another tree then.
	git("commit", "-q", "--allow-empty", "-m", "more")
	rv, err = f.ImportReview(t.Context(), answerFile(t, good()), ImportOptions{})
	must(t, err)
	if rv.State != ReviewStale {
		t.Errorf("it is %s", rv.State)
	}
	// What a reject names beside its commit is no target of this job.
	a = good()
	a.Verdict.Verdict, a.Verdict.Ref = jobs.VerdictReject, "refs/heads/release"
	rv, err = f.ImportReview(t.Context(), answerFile(t, a), ImportOptions{})
	must(t, err)
	if v := rv.Reviews.Verdict(); v.Verdict != jobs.VerdictReject || v.Ref != "refs/heads/main" {
		t.Errorf("%+v", v)
	}
	if left, _ := filepath.Glob(filepath.Join(f.Store.Home(), "reviews", "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	child := *r
	child.Spec.Parent = r.Spec.ID
	if err := reviewable(&child); err == nil || !strings.Contains(err.Error(), "by the task of another job") || !strings.Contains(jobs.HintOf(err), jobs.Short(r.Spec.ID)) {
		t.Errorf("a child: %v", err)
	}
}

// What a file says of several repositories is refused where no export has written it.
func TestCheckSentOfSeveral(t *testing.T) {
	id, commit := "01900000-0000-7000-8000-000000000001", strings.Repeat("1", 40)
	of := func(name string) jobs.SentWorkspace {
		return jobs.SentWorkspace{Workspace: name, Base: commit, Onto: commit, Tree: commit, Ref: "refs/heads/main", Branch: jobs.BranchName("x", id),
			Result: jobs.Result{Workspace: name, Base: commit, Commit: commit, Tree: commit}}
	}
	good := func() *jobs.ReviewSent {
		return &jobs.ReviewSent{Version: 2, Job: id, Name: "x", Slug: "x", By: "bob", Host: "far", State: jobs.StateCompleted, SentWorkspace: of(""),
			Further: []jobs.SentWorkspace{of("lib"), of("docs")},
			Runs:    []jobs.ReviewRun{{Further: []jobs.ReviewTree{{Workspace: "lib"}, {Workspace: "docs"}}}}}
	}
	must(t, checkSent(good(), "f"))
	for want, edit := range map[string]func(*jobs.ReviewSent){
		"schema 1, with 3":          func(s *jobs.ReviewSent) { s.Version = 1 },
		"schema 2, with 1":          func(s *jobs.ReviewSent) { s.Further, s.Runs = nil, nil },
		"newer berth":               func(s *jobs.ReviewSent) { s.Version = 3 },
		`"lib" twice`:               func(s *jobs.ReviewSent) { s.Further[1] = of("lib") },
		`"" twice`:                  func(s *jobs.ReviewSent) { s.Further[1] = of("") },
		`no name of a workspace`:    func(s *jobs.ReviewSent) { s.Further[1] = of("../x") },
		"is that of":                func(s *jobs.ReviewSent) { s.Further[1].Result.Workspace = "" },
		"is not the branch":         func(s *jobs.ReviewSent) { s.Further[0].Branch = "main" },
		"is no branch":              func(s *jobs.ReviewSent) { s.Further[0].Ref = "refs/tags/x" },
		`"--x" is no commit`:        func(s *jobs.ReviewSent) { s.Further[0].Onto = "--x" },
		"its scope":                 func(s *jobs.ReviewSent) { s.Further[0].Scope = []string{"../x"} },
		"of other workspaces":       func(s *jobs.ReviewSent) { s.Runs[0].Further = nil },
		"its result starts from":    func(s *jobs.ReviewSent) { s.Further[1].Result.Base = strings.Repeat("2", 40) },
		"schema 2, with 18 workspa": func(s *jobs.ReviewSent) { s.Further = append(s.Further, make([]jobs.SentWorkspace, 15)...) },
	} {
		s := good()
		edit(s)
		if err := checkSent(s, "f"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Where another account has to approve, the author's own is refused by name.
func TestAnotherApproves(t *testing.T) {
	for name, c := range map[string]struct {
		by, git string
		here    bool
		want    string
	}{
		"here":        {here: true, want: "here and with the author's own account"},
		"same name":   {by: identity().User, want: "has the same name"},
		"same person": {by: "bob", git: "B <ME@example.org>", want: "git knows both by the address me@example.org"},
		"another":     {by: "bob", git: "Bob <bob@example.org>"},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, _, git := reviewing(t)
			git("config", "user.email", "me@example.org")
			res := r.Current().Result()
			if !c.here {
				_, err := f.ImportReview(t.Context(), answerFile(t, jobs.ReviewAnswer{Version: 1, Job: r.Spec.ID, Verdict: jobs.ReviewVerdict{Version: 1, Verdict: jobs.VerdictApprove,
					Commit: res.Commit, Tree: res.Tree, Onto: res.Base, Ref: "refs/heads/main", By: c.by, Host: "far", Git: c.git}}), ImportOptions{})
				must(t, err)
			}
			_, err := f.MergeReview(t.Context(), r, MergeOptions{Other: "review.by of a file"})
			switch {
			case c.want == "":
				must(t, err)
			case err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "review.by of a file") || jobs.KindOf(err) != jobs.KindConfig:
				t.Errorf("%v", err)
			}
		})
	}
}

// What an imported result has changed outside of its scope is looked at: its record is the
// words of who sent it.
func TestSentScope(t *testing.T) {
	f, r, _, _ := reviewing(t)
	res := r.Current().Result()
	r.Sent = &jobs.ReviewSent{SentWorkspace: jobs.SentWorkspace{Ref: "refs/heads/main", Base: res.Base, Onto: res.Base, Tree: res.Tree}}
	r.Spec.Workspace.Scope = []string{"nothing/**"}
	if text := OutsideText(r); text != "" {
		t.Fatalf("by its record: %s", text)
	}
	_, err := f.Approve(t.Context(), r, ApproveOptions{Unchecked: true})
	if jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(err.Error(), " out of scope: ") || !strings.Contains(jobs.HintOf(err), "--out-of-scope ") {
		t.Fatalf("%v; %s", err, jobs.HintOf(err))
	}
	rv, err := f.Approve(t.Context(), r, ApproveOptions{Unchecked: true, OutOfScope: true})
	must(t, err)
	if v := rv.Reviews.Verdict(); !v.OutOfScope || rv.Outside == "" {
		t.Errorf("%+v, %q", v, rv.Outside)
	}
}
