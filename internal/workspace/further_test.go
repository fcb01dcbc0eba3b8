package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A work tree inside another one is made, collected and checked out like the first, and is
// no part of that one's result.
func TestBelow(t *testing.T) {
	outer, inner := newFixture(t), newFixture(t)
	outer.commit(map[string]string{"a": "1\n"})
	inner.commit(map[string]string{"b": "1\n"})
	ctx := testContext(t)
	outer.g.Others = []string{".repos/in"}
	work := outer.work()
	outer.prepare()
	inner.g.Work, inner.g.Below = work, ".repos/in"
	dir := filepath.Join(outer.attempt, "repos", "in")
	inner.attempt = dir
	inner.prepare()
	if out := outer.git(work, "status", "--porcelain"); out != "" {
		t.Errorf("the task's git shows %q", out)
	}
	outer.write(work, map[string]string{"a": "2\n", ".repos/in/b": "2\n", ".repos/in/log": "3\n", ".repos/beside": "4\n"})
	first, err := outer.g.Collect(ctx, outer.attempt, outer.src, CollectOptions{Branch: "x"})
	if err != nil || len(first.Files) != 2 || first.Files[0].Path != ".repos/beside" || first.Files[1].Path != "a" || len(first.Skipped) != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := inner.g.Collect(ctx, dir, inner.src, CollectOptions{Branch: "x", Artifacts: []string{".repos/in/log"}})
	if err != nil || len(second.Files) != 1 || second.Files[0].Path != "b" || second.Apart != 1 {
		t.Fatalf("%+v, %v", second, err)
	}
	to := filepath.Join(t.TempDir(), "done")
	if err := outer.g.Recheckout(ctx, outer.attempt, outer.src, first.Commit, to); err != nil {
		t.Fatal(err)
	}
	if err := inner.g.Recheckout(ctx, dir, inner.src, second.Commit, to); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, ".repos/in/b")); err != nil || string(b) != "2\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// What stands there is no other directory than the one that was made: a link is not
// followed, wherever on the way.
func TestBelowReplaced(t *testing.T) {
	for name, do := range map[string]func(work string) error{
		"gone": func(work string) error { return os.RemoveAll(filepath.Join(work, ".repos")) },
		"link": func(work string) error {
			return errors.Join(os.RemoveAll(filepath.Join(work, ".repos/in")), os.Symlink("..", filepath.Join(work, ".repos/in")))
		},
		"link above": func(work string) error {
			top := filepath.Join(work, ".repos")
			return errors.Join(os.Rename(top, filepath.Join(work, "moved")), os.Symlink("moved", top))
		},
		"file": func(work string) error {
			return errors.Join(os.RemoveAll(filepath.Join(work, ".repos/in")), os.WriteFile(filepath.Join(work, ".repos/in"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.commit(map[string]string{"a": "1\n"})
			work := f.work()
			must(t, os.MkdirAll(work, 0o700)) // the first one stands
			f.g.Work, f.g.Below = work, ".repos/in"
			dir := filepath.Join(f.attempt, "repos", "in")
			f.attempt = dir
			f.prepare()
			if err := do(work); err != nil {
				t.Fatal(err)
			}
			_, err := f.g.Collect(testContext(t), dir, f.src, CollectOptions{Branch: "x"})
			if !errors.Is(err, ErrReplaced) || !strings.Contains(err.Error(), "is not the work tree any more") {
				t.Errorf("%v", err)
			}
		})
	}
}

// The first repository's commit may have a link where the others stand: nothing is made
// behind it.
func TestLinkInPlaceOfFurther(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	work, outside := f.work(), t.TempDir()
	must(t, os.MkdirAll(work, 0o700))
	src, err := f.g.Resolve(testContext(t), f.repo, "")
	must(t, err)
	if err := os.Symlink(outside, filepath.Join(work, ".repos")); err != nil {
		t.Fatal(err)
	}
	f.g.Work, f.g.Below = work, ".repos/in"
	_, err = f.g.Prepare(testContext(t), src, filepath.Join(f.attempt, "repos", "in"))
	if !errors.Is(err, ErrReplaced) {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
