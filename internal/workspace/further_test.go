package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	if err != nil || len(first.Files) != 1 || first.Files[0].Path != "a" || len(first.Skipped) != 1 || first.Skipped[0].Path != ".repos/beside" {
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

// What a task puts beside the other work trees is of no result, is said whatever is ignored,
// and can be brought. No link of it is followed.
func TestBesideFurther(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n", ".gitignore": ".*\n!.gitignore\n*.log\n"})
	ctx, outside := testContext(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600))
	f.g.Others = []string{".repos/in"}
	f.prepare()
	work := f.work()
	f.write(work, map[string]string{"a": "2\n", ".repos/in/b": "1\n", ".repos/inner/deep/x.log": "2\n", ".repos/file": "3\n", ".repos/.gitignore": "*\n",
		".repos/in.old": "4\n", ".repos/nested/.git/config": "[core]\n", ".repos/nested/c": "5\n", ".repos/art": "6\n"})
	for name, to := range map[string]string{"link": outside, "self": "../.."} {
		must(t, os.Symlink(to, filepath.Join(work, ".repos", name)))
	}
	must(t, syscall.Mkfifo(filepath.Join(work, ".repos", "fifo"), 0o600))
	res, err := f.g.Collect(ctx, f.attempt, f.src, CollectOptions{Branch: "x", Artifacts: []string{".repos/art"}})
	must(t, err)
	if len(res.Files) != 1 || res.Files[0].Path != "a" || res.Apart != 1 {
		t.Errorf("%+v, %d apart", res.Files, res.Apart)
	}
	var beside, other []string
	for _, s := range res.Skipped {
		if s.Kind == Beside {
			beside = append(beside, string(s.Path))
		} else {
			other = append(other, string(s.Path))
		}
	}
	if got := strings.Join(beside, " "); got != ".repos/.gitignore .repos/file .repos/in.old .repos/inner/deep/x.log .repos/link .repos/nested/c .repos/self" {
		t.Errorf("%s", got)
	}
	if got := strings.Join(other, " "); got != ".repos/fifo .repos/nested/.git" {
		t.Errorf("%s", got)
	}
	if len(res.Omitted) != 2 || res.Omitted[1].Told || !res.Omitted[0].Told || !strings.Contains(res.Omitted[1].String(), "branch: 7 paths in .repos that are of no workspace") {
		t.Errorf("%+v", res.Omitted)
	}
	left, _, err := LeftOut(f.attempt)
	must(t, err)
	into := t.TempDir()
	if _, err = CopyOut(ctx, work, into, left); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(into, ".repos/inner/deep/x.log")); err != nil || string(b) != "2\n" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(into, ".repos/link/secret")); err == nil {
		t.Error("a link was followed")
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
