package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
	"berth/jobs/store"
)

// reviewing is a job whose result is in the repository and approved.
func reviewing(t *testing.T) (f *fixture, r *jobs.Record, repo string, git func(...string) string) {
	t.Helper()
	f = newFixture(t)
	f.environ["PATH"], f.environ["HOME"] = os.Getenv("PATH"), t.TempDir()
	r, repo, git, _ = ended(t, f)
	r = f.see(r).Record
	_, err := f.Approve(t.Context(), r, ApproveOptions{Unchecked: true})
	must(t, err)
	return f, r, repo, git
}

// What was approved is bound: the commit, the tree and what it goes onto.
func TestApproveBinds(t *testing.T) {
	f, r, _, git := reviewing(t)
	rs, err := store.LoadReviews(r.Dir)
	must(t, err)
	v := rs.Verdict()
	if v.Commit != r.Current().Result().Commit || v.Tree != git("rev-parse", v.Commit+"^{tree}") || v.Onto != git("rev-parse", "main") ||
		v.Ref != "refs/heads/main" || !v.Unchecked || v.Level != jobs.LevelNone || v.By == "" {
		t.Errorf("%+v", v)
	}
	// Another tree under the same verdict is refused, hash for hash.
	rv, err := f.Review(t.Context(), r, "")
	must(t, err)
	forged := *v
	forged.Tree = strings.Repeat("0", 40)
	if err := same(rv, &forged); err == nil || !strings.Contains(err.Error(), "tree 000000000000 was approved") {
		t.Errorf("%v", err)
	}
	if err := same(rv, v); err != nil {
		t.Error(err)
	}
}

// A journal without an end: the old commit is moved, the new one is recorded, another
// one is left alone and said.
func TestMergeGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(m *jobs.ReviewMerge, repo string, git func(...string) string)
		want string // in the error; "" is that it is merged
	}{
		"nothing moved": {func(*jobs.ReviewMerge, string, func(...string) string) {}, ""},
		"moved": {func(m *jobs.ReviewMerge, _ string, git func(...string) string) {
			git("merge", "-q", "--ff-only", m.New)
		}, ""},
		"moved and more on top": {func(m *jobs.ReviewMerge, _ string, git func(...string) string) {
			git("merge", "-q", "--ff-only", m.New)
			git("commit", "-q", "--allow-empty", "-m", "more")
		}, ""},
		"elsewhere": {func(_ *jobs.ReviewMerge, _ string, git func(...string) string) {
			git("commit", "-q", "--allow-empty", "-m", "other")
		}, "main was to move from"},
		"elsewhere with its files": {func(m *jobs.ReviewMerge, _ string, git func(...string) string) {
			git("read-tree", "-m", "-u", m.Old, m.New)
			git("update-ref", "refs/heads/main", git("commit-tree", "-p", m.Old, "-m", "other", m.Old+"^{tree}"))
		}, "were put back"},
		"not checked out any more": {func(m *jobs.ReviewMerge, _ string, git func(...string) string) { git("switch", "-q", "--detach") }, ""},
		"edited": {func(_ *jobs.ReviewMerge, repo string, _ func(...string) string) {
			must(t, os.WriteFile(filepath.Join(repo, "a"), []byte("mine\n"), 0o600))
		}, "were changed since: a"},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, repo, git := reviewing(t)
			res := r.Current().Result()
			m := jobs.ReviewMerge{Version: 1, Repo: r.Spec.Workspace.GitDir, Ref: "refs/heads/main", Old: res.Base, New: res.Commit, Tree: res.Tree, Worktree: repo}
			_, err := store.SetMerge(r.Dir, 1, m)
			must(t, err)
			if list, err := f.ListReviews(t.Context(), false); err != nil || len(list.Items) != 1 || list.Items[0].State != ReviewUnfinished {
				t.Fatalf("%+v, %v", list, err)
			}
			c.do(&m, repo, git)
			_, err = f.MergeReview(t.Context(), r, MergeOptions{})
			rs, lerr := store.LoadReviews(r.Dir)
			must(t, lerr)
			if done := rs.IsMerged(res.Commit) != nil; (err == nil) != (c.want == "") || done != (c.want == "") {
				t.Fatalf("%t, %v", done, err)
			}
			if c.want != "" {
				if !strings.Contains(err.Error(), c.want) || jobs.CodeOf(err) != jobs.CodeUsage {
					t.Errorf("%v", err)
				}
				return
			}
			git("merge-base", "--is-ancestor", res.Commit, "main")
			if git("status", "--porcelain") != "" {
				t.Error(git("status"))
			}
		})
	}
}

// Where a merge cannot go on, another verdict is possible; where it can, it is not.
func TestUnfinishedVerdict(t *testing.T) {
	f, r, repo, git := reviewing(t)
	res := r.Current().Result()
	m := jobs.ReviewMerge{Version: 1, Ref: "refs/heads/main", Old: res.Base, New: res.Commit, Tree: res.Tree, Worktree: repo}
	_, err := store.SetMerge(r.Dir, 1, m)
	must(t, err)
	if _, err := f.Reject(t.Context(), r, ""); err == nil || !strings.Contains(err.Error(), "has no end") {
		t.Errorf("%v", err)
	}
	git("commit", "-q", "--allow-empty", "-m", "other")
	_, err = f.Approve(t.Context(), r, ApproveOptions{Unchecked: true})
	must(t, err)
	if _, err = f.MergeReview(t.Context(), r, MergeOptions{}); err != nil || git("show", "main:a") != "2" {
		t.Errorf("%v", err)
	}
}

// A job decides on nothing.
func TestReviewBelowJob(t *testing.T) {
	f, r, _, _ := reviewing(t)
	f.environ[jobVariable] = r.Spec.ID
	_, aerr := f.Approve(t.Context(), r, ApproveOptions{Unchecked: true})
	_, rerr := f.Reject(t.Context(), r, "")
	_, merr := f.MergeReview(t.Context(), r, MergeOptions{})
	for _, err := range []error{aerr, rerr, merr} {
		if jobs.CodeOf(err) != jobs.CodeAuth {
			t.Errorf("%v", err)
		}
	}
}
