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
	lend := func(bundle string) (string, error) {
		commit, _, err := f.g.Lend(testContext(t), f.attempt, lent, f.src, CollectOptions{Branch: "berth-child/" + bundle, Bundle: bundle, Message: "x"})
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
	if left, err := filepath.Glob(filepath.Join(f.attempt, "*all*")); err != nil || len(left) > 0 {
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
	lend := func(g *Git, bundle string) (string, error) {
		commit, _, err := g.Lend(testContext(t), f.attempt, lent, f.src, CollectOptions{Branch: "berth-child/" + bundle, Bundle: bundle, Message: "x"})
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
	after := ""
	for n := range 4 {
		f.write(f.work(), map[string]string{"a.txt": strconv.Itoa(n+2) + "\n"})
		name := strconv.Itoa(n)
		got, _, err := f.g.Lend(testContext(t), f.attempt, lent, f.src,
			CollectOptions{Branch: "berth-child/" + name, Bundle: name, Message: name, Time: time.Unix(int64(1e9+n), 0), After: after})
		if err != nil {
			t.Fatal(err)
		}
		after = got
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
	got, omitted, err := f.g.Lend(testContext(t), f.attempt, lent, f.src, CollectOptions{Branch: "berth-child/1-1-1", Bundle: "one", Message: "x"})
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
