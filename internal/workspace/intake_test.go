package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func (f *fixture) changed(content string) Result {
	f.t.Helper()
	f.write(f.work(), map[string]string{"a": content})
	return f.collect(CollectOptions{})
}

func TestIntakeNeverMovesABranch(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	res := f.changed("2\n")
	f.git(f.repo, "branch", testBranch, "HEAD")
	err := f.intake(res)
	var e *Error
	if !errors.Is(err, ErrBranchExists) || !errors.As(err, &e) || e.Hint() == "" {
		t.Fatalf("got %v", err)
	}
	t.Logf("%v (%s)", e, e.Hint())
	same(t, "branch", f.git(f.repo, "rev-parse", testBranch), f.src.Base)
}

func TestIntakeNameCollisions(t *testing.T) {
	for _, other := range []string{"berth", "berth/fix-it", testBranch + "/below"} {
		for _, pack := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s packed %v", other, pack), func(t *testing.T) {
				f := newFixture(t)
				f.commit(map[string]string{"a": "1\n"})
				f.git(f.repo, "branch", other)
				if pack {
					f.git(f.repo, "pack-refs", "--all")
				}
				f.prepare()
				res := f.changed("2\n")
				err := f.intake(res)
				var e *Error
				if !errors.Is(err, ErrBranchExists) || !errors.As(err, &e) || e.Hint() == "" {
					t.Fatalf("got %v", err)
				}
				t.Logf("%v (%s)", e, e.Hint())
				// The hint works.
				f.git(f.repo, strings.Fields(e.Hint()[strings.Index(e.Hint(), "git ")+4:])...)
				must(t, f.intake(res))
			})
		}
	}
}

// Only what the result says comes in.
func TestIntakeRejects(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.commit(map[string]string{"a": "1b\n"})
	f.prepare()
	res := f.changed("2\n")
	bundle := filepath.Join(f.attempt, BundleFile)
	good, err := os.ReadFile(bundle)
	must(t, err)
	before := state(t, f.repo)
	objects := f.git(f.repo, "count-objects", "-v")

	evil := filepath.Join(t.TempDir(), "evil")
	f.git(filepath.Dir(evil), "clone", "-q", f.repo, evil)
	makeBundle := func(change func()) (string, []byte) {
		f.git(evil, "checkout", "-q", "-B", "evil", f.src.Base)
		change()
		id := f.git(evil, "rev-parse", "HEAD")
		f.git(evil, "bundle", "create", "-q", "b", "evil", "^"+f.src.Base)
		data, err := os.ReadFile(filepath.Join(evil, "b"))
		must(t, err)
		return id, data
	}
	commit := func(name string) {
		f.write(evil, map[string]string{name: "evil\n"})
		f.git(evil, "add", name)
		f.git(evil, "commit", "-q", "-m", "x")
	}
	one, oneBundle := makeBundle(func() { commit("x") })
	two, twoBundle := makeBundle(func() { commit("x"); commit("y") })
	merge, mergeBundle := makeBundle(func() {
		commit("x")
		f.git(evil, "checkout", "-q", "-b", "side", f.src.Base)
		commit("y")
		f.git(evil, "checkout", "-q", "evil")
		f.git(evil, "merge", "-q", "side")
	})
	dotgit, dotgitBundle := makeBundle(func() {
		blob := f.git(evil, "rev-parse", "HEAD:a")
		must(t, os.WriteFile(filepath.Join(evil, "in"), []byte("100644 blob "+blob+"\t.GIT\n"), 0o600))
		tree := f.git(evil, "-c", "alias.m=!git mktree < in", "m")
		f.git(evil, "reset", "-q", "--soft", f.git(evil, "commit-tree", "-p", f.src.Base, "-m", "x", tree))
	})
	treeOf := func(id string) string { return f.git(evil, "rev-parse", id+"^{tree}") }
	lie := func(commit, tree string) Result {
		r := res
		r.Commit, r.Tree = commit, tree
		return r
	}
	for _, tc := range []struct {
		name   string
		bundle []byte
		res    Result
		want   error
	}{
		{"another commit", oneBundle, res, ErrRejected},
		{"another tree", good, lie(res.Commit, treeOf(one)), ErrRejected},
		{"two commits", twoBundle, lie(two, treeOf(two)), ErrRejected},
		{"a merge", mergeBundle, lie(merge, treeOf(merge)), ErrRejected},
		{"a refused name", dotgitBundle, lie(dotgit, treeOf(dotgit)), ErrRejected},
		{"cut short", good[:len(good)-10], res, ErrRejected},
		{"damaged", append(append([]byte{}, good[:len(good)-30]...), make([]byte, 30)...), res, ErrRejected},
		{"no bundle", []byte("hello\n"), res, ErrRejected},
		{"empty", nil, res, ErrRejected},
		{"the base itself", good, lie(f.src.Base, treeOf(f.src.Base)), ErrRejected},
		{"a tree for a commit", good, lie(res.Tree, res.Tree), ErrRejected},
		{"no commit", good, lie("", ""), ErrInvalid},
		{"an option for a commit", good, lie("--all", ""), ErrInvalid},
		{"another base", good, func() Result { r := res; r.Base = one; return r }(), ErrRejected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			must(t, os.WriteFile(bundle, tc.bundle, 0o600))
			err := f.intake(tc.res)
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			t.Log(err)
			same(t, "user's repository", state(t, f.repo), before)
			same(t, "objects", f.git(f.repo, "count-objects", "-v"), objects)
			left, err := filepath.Glob(filepath.Join(f.attempt, quarantinePrefix+"*"))
			must(t, err)
			same(t, "quarantines left", len(left), 0)
		})
	}
	must(t, os.WriteFile(bundle, good, 0o600))
	for _, branch := range []string{"", "-x", "a..b", "x\nupdate refs/heads/topic 0", "HEAD^", "x.lock"} {
		if err := f.g.Intake(testContext(t), f.src, bundle, branch, res); !errors.Is(err, ErrInvalid) {
			t.Errorf("branch %q: %v", branch, err)
		}
	}
	must(t, f.intake(res))
}

// Hooks and configuration of the user's repository do not act on an intake.
func TestIntakeIsSilent(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.git(f.repo, "tag", "a-tag")
	for _, kv := range [][2]string{{"core.logAllRefUpdates", "always"}, {"gc.auto", "1"}, {"fetch.writeCommitGraph", "true"}, {"remote.origin.url", "/nonexistent"},
		{"remote.origin.fetch", "+refs/*:refs/*"}, {"fetch.prune", "true"}, {"receive.denyCurrentBranch", "updateInstead"}, {"transfer.hideRefs", "refs/"}, {"core.fsmonitor", f.canary}, {"core.alternateRefsCommand", f.canary}} {
		f.git(f.repo, "config", kv[0], kv[1])
	}
	for _, hook := range []string{"reference-transaction", "post-update", "update", "pre-receive", "post-receive", "pre-auto-gc", "post-checkout"} {
		f.write(f.repo, map[string]string{".git/hooks/" + hook: "+x#!/bin/sh\nexec " + quoteSh(f.canary) + "\n"})
	}
	before := state(t, f.repo)
	f.prepare()
	res := f.changed("2\n")
	must(t, f.intake(res))
	same(t, "user's repository", state(t, f.repo), before)
	if _, err := os.Stat(f.ran); err == nil {
		t.Error("a hook ran")
	}
	same(t, "reflog", f.git(f.repo, "reflog", "show", testBranch), "")
}

// Many small objects stay loose, many become a pack; both are complete.
func TestIntakeLarge(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("d%d/f%d", i%10, i)] = fmt.Sprint(i)
	}
	f.write(f.work(), files)
	res := f.collect(CollectOptions{})
	must(t, f.intake(res))
	must(t, Cleanup(f.attempt))
	f.git(f.repo, "fsck", "--full")
	same(t, "files", len(f.tree(f.repo, testBranch)), 301)
}

// Whoever comes second finds the work done.
func TestIntakeAtTheSameTime(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	res := f.changed("2\n")
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		wg.Go(func() { errs[i] = f.intake(res) })
	}
	wg.Wait()
	must(t, errors.Join(errs...))
	same(t, "branch", f.git(f.repo, "rev-parse", testBranch), res.Commit)
}
