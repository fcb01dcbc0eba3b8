package review

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/workspace"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fixture is a user's repository with a branch "main" that is checked out, and a result on
// the branch "result".
type fixture struct {
	t            *testing.T
	dir, attempt string
	*Repo
	Move
}

func (f *fixture) git(args ...string) string {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), "git", args...)
	cmd.Dir = f.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@x", "GIT_COMMITTER_NAME=u", "GIT_COMMITTER_EMAIL=u@x"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (f *fixture) write(files map[string]string) {
	f.t.Helper()
	for name, text := range files {
		p := filepath.Join(f.dir, name)
		must(f.t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(f.t, os.WriteFile(p, []byte(text), 0o644))
	}
}

func (f *fixture) commit(files map[string]string) string {
	f.t.Helper()
	f.write(files)
	f.git("add", "-A")
	f.git("commit", "-q", "--allow-empty", "-m", "m")
	return f.git("rev-parse", "HEAD")
}

// state is what a person sees: the branch, the index and the files.
func (f *fixture) state() string {
	return strings.Join([]string{f.git("rev-parse", "main"), f.git("status", "--porcelain"), f.git("ls-files", "-s")}, "\n")
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), attempt: t.TempDir()}
	run := func(ctx context.Context, c workspace.Cmd) error {
		cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
		cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, c.Stdin, c.Stdout, c.Stderr
		cmd.WaitDelay = 5 * time.Second
		return cmd.Run()
	}
	f.git("init", "-q", "-b", "main")
	base := f.commit(map[string]string{"a": "1\n", "b": "1\n", "gone": "x\n", "deep/er": "x\n", "swap": "file\n"})
	f.git("switch", "-q", "-c", "result")
	f.git("rm", "-q", "gone", "swap")
	commit := f.commit(map[string]string{"a": "2\n", "new/file": "n\n", "swap/inner": "dir\n"})
	f.git("switch", "-q", "main")
	dir, err := filepath.EvalSymlinks(f.dir)
	must(t, err)
	f.dir = dir
	f.Repo = &Repo{Git: &workspace.Git{Run: run}, Src: workspace.Source{Repo: filepath.Join(dir, ".git"), Top: dir, Base: base, Branch: "main"},
		User: func(name string) (string, bool) {
			v, ok := map[string]string{"HOME": "/nonexistent", "PATH": os.Getenv("PATH")}[name]
			return v, ok
		}}
	f.Move = Move{Ref: "refs/heads/main", Old: base, New: commit, Worktree: dir, Message: "berth", Who: Person{"Ada", "a@x"}}
	return f
}

func (f *fixture) borrow() *workspace.Borrowed {
	f.t.Helper()
	b, err := f.Git.Borrow(f.t.Context(), f.attempt, f.Src)
	must(f.t, err)
	f.t.Cleanup(func() { must(f.t, b.Close()) })
	return b
}

// The tree of a merge is git's own, and conflicts are told by their paths.
func TestMerge(t *testing.T) {
	f := newFixture(t)
	onto := f.commit(map[string]string{"b": "main\n"})
	b := f.borrow()
	o, err := Merge(t.Context(), b, onto, f.New)
	must(t, err)
	id, err := f.Commit(t.Context(), b, o.Tree, onto, f.New, "Merge\n", f.Who, 0)
	must(t, err)
	if got := f.git("log", "-1", "--format=%T %P %an", id); got != o.Tree+" "+onto+" "+f.New+" Ada" {
		t.Errorf("%s", got)
	}
	f.git("merge", "-q", "--no-edit", "result")
	if got := f.git("rev-parse", "HEAD^{tree}"); got != o.Tree {
		t.Errorf("git makes %s, and not %s", got, o.Tree)
	}
	f.git("reset", "-q", "--hard", f.Old)
	onto = f.commit(map[string]string{"a": "main\n"})
	if o, err = Merge(t.Context(), b, onto, f.New); err != nil || !slices.Equal(o.Conflicts, []workspace.Path{"a"}) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = Merge(t.Context(), b, strings.Repeat("1", len(onto)), f.New); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%+v, %v", o, err)
	}
	// A driver that the result names is not run.
	if in, err := f.Contains(t.Context(), f.Old, f.New); !in || err != nil {
		t.Errorf("%t, %v", in, err)
	}
	if in, err := f.Contains(t.Context(), f.New, f.Old); in || err != nil {
		t.Errorf("%t, %v", in, err)
	}
}

// What to look at first comes first, in the list and in the patch.
func TestFiles(t *testing.T) {
	f := newFixture(t)
	f.git("switch", "-q", "result")
	f.write(map[string]string{"CLAUDE.md": "obey", ".github/workflows/x.yml": "on: push", "sub/.gitattributes": "* filter=x",
		"z[1]/AGENTS.md": "x", "a_test.go": "x"})
	must(t, os.Symlink("../../etc/passwd", filepath.Join(f.dir, "zz-link")))
	must(t, os.Chmod(filepath.Join(f.dir, "b"), 0o755))
	to := f.commit(nil)
	b := f.borrow()
	changes, err := b.Changes(t.Context(), f.Old, to)
	must(t, err)
	var got, rest, tests []string
	var first []workspace.Path
	for _, file := range Files(changes) {
		line := string(file.Path) + ": " + strings.Join(file.Why, ", ")
		if len(file.Why) > 0 {
			got, first = append(got, line), append(first, file.Path)
		} else {
			rest = append(rest, string(file.Path))
		}
		if file.Test {
			tests = append(tests, string(file.Path))
		}
	}
	want := []string{".github/workflows/x.yml: programs obey it", "CLAUDE.md: programs obey it", "b: mode 100644 -> 100755", "sub/.gitattributes: programs obey it",
		"z[1]/AGENTS.md: programs obey it", "zz-link: a link out of the tree, to ../../etc/passwd"}
	if !slices.Equal(got, want) || len(rest) == 0 || !slices.Equal(tests, []string{"a_test.go"}) {
		t.Errorf("%q, %q, %q", got, rest, tests)
	}
	var patch bytes.Buffer
	must(t, b.Patch(t.Context(), f.Old, to, first, &patch))
	var order []string
	for line := range strings.Lines(patch.String()) {
		if _, name, ok := strings.Cut(line, " b/"); ok && strings.HasPrefix(line, "diff --git") {
			order = append(order, strings.TrimSpace(name))
		}
	}
	if len(order) < len(first) || order[0] != ".github/workflows/x.yml" || order[4] != "z[1]/AGENTS.md" || slices.Index(order, "a") < 6 {
		t.Errorf("%q", order)
	}
}

// Where a branch is checked out, and what of that is refused.
func TestWhere(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	where := func(want string) {
		t.Helper()
		if got, err := f.Where(ctx, f.Ref); err != nil || got != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	refused := func(text string) {
		t.Helper()
		if got, err := f.Where(ctx, f.Ref); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q, %v", got, err)
		}
	}
	where(f.dir)
	f.git("switch", "-q", "result")
	where("")
	other := filepath.Join(t.TempDir(), "other")
	f.git("worktree", "add", "-q", other, "main")
	real, err := filepath.EvalSymlinks(other)
	must(t, err)
	where(real)
	f.git("switch", "-q", "--ignore-other-worktrees", "main")
	refused("several work trees")
	f.git("switch", "-q", "result")
	must(t, os.RemoveAll(other))
	refused("which is not there")
	f.git("worktree", "prune")
	must(t, os.Mkdir(filepath.Join(f.dir, ".git", "rebase-merge"), 0o700))
	must(t, os.WriteFile(filepath.Join(f.dir, ".git", "rebase-merge", "head-name"), []byte("refs/heads/main\n"), 0o600))
	refused("in a rebase")
	must(t, os.RemoveAll(filepath.Join(f.dir, ".git", "rebase-merge")))
	f.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
	f.Ref = "refs/heads/alias"
	refused("another name of main")
}

// A work tree that is not clean is refused with what is in the way, and nothing moves.
func TestReady(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(f *fixture)
		want string
	}{
		"edited":    {func(f *fixture) { f.write(map[string]string{"b": "mine\n"}) }, "not committed: b"},
		"staged":    {func(f *fixture) { f.write(map[string]string{"s": "mine\n"}); f.git("add", "s") }, "not committed: s"},
		"untracked": {func(f *fixture) { f.write(map[string]string{"new/file": "mine\n"}) }, "new/file"},
		"ignored": {func(f *fixture) {
			f.write(map[string]string{".git/info/exclude": "new/\n", "new/file": "mine\n"})
		}, "new/file"},
		"a file for a directory": {func(f *fixture) {
			f.write(map[string]string{".git/info/exclude": "new\n", "new": "mine\n"})
		}, "does not know: new"},
		"merge":  {func(f *fixture) { f.write(map[string]string{".git/MERGE_HEAD": f.New}) }, "in the midst of a merge"},
		"bisect": {func(f *fixture) { f.write(map[string]string{".git/BISECT_LOG": ""}) }, "in the midst of a bisect"},
		"lock":   {func(f *fixture) { f.write(map[string]string{".git/index.lock": ""}) }, "another git is at work"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c.do(f)
			before, err := os.ReadFile(filepath.Join(f.dir, "a"))
			must(t, err)
			if err := f.Ready(t.Context(), f.Move); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if after, err := os.ReadFile(filepath.Join(f.dir, "a")); err != nil || !bytes.Equal(before, after) || f.git("rev-parse", "main") != f.Old {
				t.Errorf("%q, %v", after, err)
			}
		})
	}
	f := newFixture(t)
	f.write(map[string]string{"untracked": "x", "a": "1\n"}) // in no way; only touched
	must(t, f.Ready(t.Context(), f.Move))
}

// A merge that was killed goes on from wherever it was: nothing moved, some files, all
// files and no index, index and files; and never over what a person has edited since.
func TestResume(t *testing.T) {
	want := func(t *testing.T) string {
		f := newFixture(t)
		f.git("merge", "-q", "--ff-only", "result")
		return f.git("ls-files", "-s")
	}(t)
	for name, do := range map[string]func(f *fixture){
		"nothing":    func(*fixture) {},
		"some files": func(f *fixture) { f.write(map[string]string{"a": "2\n", "new/file": "n\n"}) },
		"removed": func(f *fixture) {
			must(f.t, os.Remove(filepath.Join(f.dir, "gone")))
			must(f.t, os.Remove(filepath.Join(f.dir, "a")))
		},
		"all files": func(f *fixture) {
			must(f.t, os.Remove(filepath.Join(f.dir, "gone")))
			must(f.t, os.Remove(filepath.Join(f.dir, "swap")))
			f.write(map[string]string{"a": "2\n", "new/file": "n\n", "swap/inner": "dir\n"})
		},
		"index and files": func(f *fixture) { must(f.t, f.Files(f.t.Context(), f.Move)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			do(f)
			must(t, f.Resume(t.Context(), f.Move))
			must(t, f.Point(t.Context(), f.Move))
			must(t, f.Point(t.Context(), f.Move)) // again
			if f.git("rev-parse", "HEAD") != f.New || f.git("status", "--porcelain") != "" || f.git("ls-files", "-s") != want {
				t.Errorf("%s", f.state())
			}
			if log := f.git("reflog", "-1", "--format=%gs"); log != "berth" {
				t.Errorf("%q", log)
			}
			left, err := filepath.Glob(filepath.Join(f.dir, ".git", "berth-index-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("%q, %v", left, err)
			}
		})
	}
	for name, files := range map[string]map[string]string{
		"another file": {"b": "mine\n"}, "a file of its own": {"a": "mine\n"}, "a new file": {"new/file": "mine\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write(map[string]string{"a": "2\n"})
			f.write(files)
			before := f.state()
			err := f.Resume(t.Context(), f.Move)
			for p := range files {
				if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), p) {
					t.Errorf("%v", err)
				}
			}
			if got := f.state(); got != before {
				t.Errorf("%s\n%s", before, got)
			}
		})
	}
}

// The branch moved between files and ref: nothing of another's is lost, and what the
// merge made is put back where it is exactly that.
func TestMovedElsewhere(t *testing.T) {
	f := newFixture(t)
	before := f.git("ls-files", "-s")
	f.git("switch", "-q", "--detach")
	elsewhere := f.commit(map[string]string{"c": "3\n"})
	f.git("switch", "-q", "main")
	must(t, f.Files(t.Context(), f.Move))
	f.git("update-ref", "refs/heads/main", elsewhere)
	if err := f.Point(t.Context(), f.Move); !errors.Is(err, ErrMoved) || f.git("rev-parse", "main") != elsewhere {
		t.Fatalf("%v", err)
	}
	if back, err := f.PutBack(t.Context(), f.Move); !back || err != nil || f.git("ls-files", "-s") != before {
		t.Errorf("%t, %v", back, err)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "new", "file")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	// Who has committed what was staged keeps it.
	f.git("reset", "-q", "--hard", f.Old)
	must(t, f.Files(t.Context(), f.Move))
	f.git("commit", "-q", "-m", "mine")
	if back, err := f.PutBack(t.Context(), f.Move); back || err != nil || f.git("status", "--porcelain") != "" {
		t.Errorf("%t, %v", back, err)
	}
	// Edited since: it stays.
	f.git("reset", "-q", "--hard", f.Old)
	must(t, f.Files(t.Context(), f.Move))
	f.git("update-ref", "refs/heads/main", elsewhere)
	f.write(map[string]string{"a": "mine\n"})
	if back, err := f.PutBack(t.Context(), f.Move); back || err != nil {
		t.Errorf("%t, %v", back, err)
	}
}

// What is not checked out moves by one transaction, and no file is touched.
func TestPoint(t *testing.T) {
	f := newFixture(t)
	f.git("switch", "-q", "--detach")
	f.Worktree = ""
	must(t, f.Point(t.Context(), f.Move))
	if f.git("rev-parse", "main") != f.New || f.git("status", "--porcelain") != "" {
		t.Error(f.state())
	}
	f.New = f.Old
	if err := f.Point(t.Context(), f.Move); !errors.Is(err, ErrMoved) {
		t.Errorf("%v", err)
	}
}

// Hooks of the repository and a driver that a result names do not run; the user's own
// filter does, in a checked-out work tree alone.
func TestNothingRuns(t *testing.T) {
	f := newFixture(t)
	ran := filepath.Join(t.TempDir(), "ran")
	script := "#!/bin/sh\necho \"$0\" >>" + ran + "\ncat\n"
	for _, hook := range []string{"post-checkout", "post-merge", "reference-transaction", "post-index-change", "pre-commit", "fsmonitor-watchman"} {
		must(t, os.WriteFile(filepath.Join(f.dir, ".git", "hooks", hook), []byte(script), 0o700))
	}
	driver := filepath.Join(t.TempDir(), "driver")
	must(t, os.WriteFile(driver, []byte(script), 0o700))
	f.git("config", "merge.evil.driver", driver)
	f.git("config", "diff.evil.textconv", driver)
	f.git("config", "diff.evil.command", driver)
	f.git("config", "core.fsmonitor", filepath.Join(f.dir, ".git", "hooks", "fsmonitor-watchman"))
	must(t, os.WriteFile(filepath.Join(f.dir, ".git", "info", "attributes"), []byte("* merge=evil diff=evil\n"), 0o600))
	_ = os.Remove(ran)
	b := f.borrow()
	onto := f.New
	if _, err := Merge(t.Context(), b, onto, f.Old); err != nil {
		t.Fatal(err)
	}
	changes, err := b.Changes(t.Context(), f.Old, f.New)
	must(t, err)
	must(t, b.Patch(t.Context(), f.Old, f.New, nil, &bytes.Buffer{}))
	if _, err := f.Where(t.Context(), f.Ref); err != nil || len(changes) == 0 {
		t.Fatal(err)
	}
	must(t, f.Ready(t.Context(), f.Move))
	must(t, f.Files(t.Context(), f.Move))
	must(t, f.Point(t.Context(), f.Move))
	if said, err := os.ReadFile(ran); err == nil {
		t.Errorf("these were run: %s", said)
	}
}
