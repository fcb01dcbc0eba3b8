package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What another job starts from is the work tree as it is, read without git, and a link in
// it is a link: nothing of what it points to. The work tree of that job is made from it.
func TestLend(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a.txt": "1\n", "dir/b": "1\n"})
	f.prepare()
	lent := filepath.Join(filepath.Dir(f.attempt), "children.git")
	lend := func(name string) (string, error) {
		commit, _, err := f.g.Lend(testContext(t), f.attempt, lent, f.src, CollectOptions{Branch: "berth-child/" + name, Message: "x"})
		return commit, err
	}
	if got, err := lend("none"); err != nil || got != f.src.Base {
		t.Fatalf("%s, %v: nothing has changed", got, err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.write(f.work(), map[string]string{"a.txt": "2\n", "link": "->" + secret, "out": "->../../..", ".git/info/exclude": "*\n"})
	if err := os.RemoveAll(filepath.Join(f.work(), "dir")); err != nil {
		t.Fatal(err)
	}
	f.write(f.work(), map[string]string{"dir": "->" + filepath.Dir(secret)}) // where a directory was
	got, err := lend("all")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "tree", f.tree(lent, got), []string{"100644 a.txt", "120000 dir", "120000 link", "120000 out"})
	if s := f.git(lent, "show", got+":link"); s != secret {
		t.Errorf("the link has %q", s)
	}
	if left, err := filepath.Glob(filepath.Join(f.attempt, ChildPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	child := filepath.Join(filepath.Dir(f.attempt), "child")
	if err := os.Mkdir(child, 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := f.g.Prepare(testContext(t), Source{Repo: lent, Top: lent, Base: got}, child)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Cleanup(child); err != nil {
			t.Error(err)
		}
	})
	entries, err := os.ReadDir(p.Work)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if to, lerr := os.Readlink(filepath.Join(p.Work, "dir")); err != nil || lerr != nil || to != filepath.Dir(secret) ||
		!slices.Equal(names, []string{".git", "a.txt", "dir", "link", "out"}) {
		t.Errorf("%v, %q, %v, %v", names, to, err, lerr)
	}
}

// What was killed while it made the git directory is no reason for the next one to fail.
func TestLendKilled(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a.txt": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a.txt": "2\n"})
	lent := filepath.Join(filepath.Dir(f.attempt), "children.git")
	killed := errors.New("killed")
	g := &Git{Run: func(ctx context.Context, c Cmd) error {
		err := execRun(ctx, c)
		if slices.Contains(c.Args, "init") && strings.HasPrefix(c.Dir, lent) {
			err = errors.Join(err, killed)
		}
		return err
	}}
	lend := func(g *Git, name string) (string, error) {
		commit, _, err := g.Lend(testContext(t), f.attempt, lent, f.src, CollectOptions{Branch: "berth-child/" + name, Message: "x"})
		return commit, err
	}
	if _, err := lend(g, "one"); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	got, err := lend(f.g, "two")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "tree", f.tree(lent, got), []string{"100644 a.txt"})
	if left, err := filepath.Glob(lent + "?*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// What was lent before is not copied with each commit after it.
func TestLendOnce(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a.txt": "1\n"})
	f.prepare()
	lent := filepath.Join(filepath.Dir(f.attempt), "children.git")
	big := make([]byte, 1<<20)
	_, _ = rand.Read(big)
	f.write(f.work(), map[string]string{"big": string(big)})
	for n := range 4 {
		f.write(f.work(), map[string]string{"a.txt": strconv.Itoa(n+2) + "\n"})
		name := strconv.Itoa(n)
		got, _, err := f.g.Lend(testContext(t), f.attempt, lent, f.src,
			CollectOptions{Branch: "berth-child/" + name, Message: name, Time: time.Unix(int64(1e9+n), 0)})
		if err != nil {
			t.Fatal(err)
		}
		if s := f.git(lent, "show", got+":a.txt"); s != strconv.Itoa(n+2) {
			t.Errorf("%d: a.txt has %q", n, s)
		}
		same(t, "tree", f.tree(lent, got), []string{"100644 a.txt", "100644 big"})
	}
	packs, err := filepath.Glob(filepath.Join(lent, "objects", "pack", "*.pack"))
	var total int64
	for _, p := range packs {
		if fi, err := os.Stat(p); err == nil {
			total += fi.Size()
		}
	}
	if err != nil || len(packs) == 0 || total > 3<<19 {
		t.Errorf("%d packs have %d bytes, %v", len(packs), total, err)
	}
}

// What git's own check refuses is left out of a snapshot, too, by its name.
func TestLendRefused(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"b": "2\n", ".gitmodules": "[submodule \"../x\"]\n\tpath = x\n\turl = -x\n"})
	lent := filepath.Join(filepath.Dir(f.attempt), "children.git")
	got, omitted, err := f.g.Lend(testContext(t), f.attempt, lent, f.src, CollectOptions{Branch: "berth-child/1-1-1", Message: "x"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "tree", f.tree(lent, got), []string{"100644 a", "100644 b"})
	if len(omitted) != 1 || !strings.Contains(omitted[0].String(), "1 path that git cannot hold: .gitmodules") {
		t.Errorf("left out: %v", omitted)
	}
	if left, err := filepath.Glob(filepath.Join(lent, "objects", "pack", "tmp_*")); len(left) > 0 || err != nil {
		t.Errorf("left of what git refused: %q, %v", left, err)
	}
}

// What the user's repository has beside the base was never checked: a commit that needs it is
// checked with it, and holds all of it itself.
func TestLendHad(t *testing.T) {
	f := newFixture(t)
	bad := "[submodule \"../x\"]\n\tpath = x\n\turl = -x\n"
	f.commit(map[string]string{"a": "1\n", "b": "2\n", "sub/.gitmodules": "", ".gitmodules": bad})
	f.git(f.repo, "rm", "-q", ".gitmodules", "b")
	f.git(f.repo, "commit", "-q", "-m", "without")
	f.git(f.repo, "checkout", "-q", "--orphan", "base")
	f.git(f.repo, "commit", "-q", "-m", "base")
	f.git(f.repo, "repack", "-adq")
	f.prepare()
	f.write(f.work(), map[string]string{"b": "2\n", ".gitmodules": bad})
	lent := filepath.Join(filepath.Dir(f.attempt), "children.git")
	got, omitted, err := f.g.Lend(testContext(t), f.attempt, lent, f.src, CollectOptions{Branch: "berth-child/1-1-1", Message: "x"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "tree", f.tree(lent, got), []string{"100644 a", "100644 b", "100644 sub/.gitmodules"})
	if len(omitted) != 1 || !strings.Contains(omitted[0].String(), ".gitmodules") {
		t.Errorf("left out: %v", omitted)
	}
	for _, ref := range []string{"topic", "base"} {
		f.git(f.repo, "update-ref", "-d", "refs/heads/"+ref)
	}
	f.git(f.repo, "update-ref", "refs/heads/base", f.src.Base)
	f.git(f.repo, "symbolic-ref", "HEAD", "refs/heads/base")
	f.git(f.repo, "reflog", "expire", "--expire=now", "--all")
	f.git(f.repo, "gc", "-q", "--prune=now")
	f.git(lent, "rev-list", "--objects", got)
	if s := f.git(lent, "show", got+":b"); s != "2" {
		t.Errorf("b has %q", s)
	}
}

// A further snapshot takes three runs of git, and leaves nothing in berth's own git directory.
func TestLendRuns(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a.txt": "1\n"})
	f.prepare()
	lent := filepath.Join(filepath.Dir(f.attempt), "children.git")
	var runs []string
	g := &Git{Run: func(ctx context.Context, c Cmd) error {
		for _, w := range []string{"check-ignore", "fast-import", "index-pack"} {
			if slices.Contains(c.Args, w) {
				runs = append(runs, w)
				return execRun(ctx, c)
			}
		}
		runs = append(runs, strings.Join(c.Args, " "))
		return execRun(ctx, c)
	}}
	lend := func(n int) string {
		f.write(f.work(), map[string]string{"new.txt": strconv.Itoa(n) + "\n"})
		runs = nil
		got, _, err := g.Lend(testContext(t), f.attempt, lent, f.src,
			CollectOptions{Branch: "berth-child/1-1-" + strconv.Itoa(n), Message: "x", Time: time.Unix(1e9, 0)})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := lend(1)
	before := f.git(filepath.Join(f.attempt, GitDir), "count-objects", "-v")
	other := lend(2)
	same(t, "runs of git", runs, []string{"check-ignore", "fast-import", "index-pack"})
	if again := lend(1); again != first || other == first {
		t.Errorf("%s and %s, then %s", first, other, again)
	}
	same(t, "runs of git where all was lent before", runs, []string{"check-ignore", "fast-import"})
	if after := f.git(filepath.Join(f.attempt, GitDir), "count-objects", "-v"); after != before {
		t.Errorf("berth's git directory has %s, then %s", before, after)
	}
	if refs := f.git(filepath.Join(f.attempt, GitDir), "for-each-ref"); refs != "" {
		t.Errorf("berth's git directory has the refs %s", refs)
	}
	f.git(lent, "gc", "-q", "--prune=now")
	for _, commit := range []string{first, other} {
		if s := f.git(lent, "show", commit+":a.txt"); s != "1" {
			t.Errorf("%s: a.txt has %q", commit, s)
		}
	}
}
