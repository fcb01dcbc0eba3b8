package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestResolve(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"sub/a": "1\n"})
	first := f.git(f.repo, "rev-parse", "HEAD")
	f.git(f.repo, "tag", "v1")
	f.commit(map[string]string{"sub/b": "2\n"})
	head := f.git(f.repo, "rev-parse", "HEAD")
	parent := filepath.Dir(f.repo)
	repo, err := filepath.EvalSymlinks(filepath.Join(f.repo, ".git"))
	must(t, err)
	top := filepath.Dir(repo)
	linked := filepath.Join(parent, "linked")
	f.git(f.repo, "worktree", "add", "-q", "-b", "other", linked, "v1")
	linkedTop, err := filepath.EvalSymlinks(linked)
	must(t, err)
	bare := filepath.Join(parent, "bare.git")
	f.git(parent, "clone", "-q", "--bare", f.repo, bare)
	bareReal, err := filepath.EvalSymlinks(bare)
	must(t, err)
	odd := filepath.Join(parent, "odd\nname")
	f.git(parent, "clone", "-q", f.repo, odd)
	oddReal, err := filepath.EvalSymlinks(odd)
	must(t, err)
	detached := filepath.Join(parent, "detached")
	f.git(f.repo, "worktree", "add", "-q", "--detach", detached, "v1")
	detached, err = filepath.EvalSymlinks(detached)
	must(t, err)

	for _, tc := range []struct {
		name, dir, base string
		want            Source
	}{
		{"top", f.repo, "", Source{Repo: repo, Top: top, Base: head, Branch: "topic"}},
		{"subdirectory", filepath.Join(f.repo, "sub"), "HEAD", Source{Repo: repo, Top: top, Base: head, Branch: "topic"}},
		{"tag", f.repo, "v1", Source{Repo: repo, Top: top, Base: first}},
		{"abbreviated", f.repo, first[:9], Source{Repo: repo, Top: top, Base: first}},
		{"branch", f.repo, "other", Source{Repo: repo, Top: top, Base: first, Branch: "other"}},
		{"by way of a branch", f.repo, "other~0", Source{Repo: repo, Top: top, Base: first}},
		{"linked work tree", linked, "", Source{Repo: repo, Top: linkedTop, Base: first, Branch: "other"}},
		{"detached", detached, "", Source{Repo: repo, Top: detached, Base: first}},
		{"bare", bare, "", Source{Repo: bareReal, Base: head, Branch: "topic"}},
		{"inside .git", filepath.Join(f.repo, ".git"), "", Source{Repo: repo, Base: head, Branch: "topic"}},
		{"newline in the path", odd, "", Source{Repo: filepath.Join(oddReal, ".git"), Top: oddReal, Base: head, Branch: "topic"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := f.g.Resolve(testContext(t), tc.dir, tc.base)
			must(t, err)
			same(t, "source", got, tc.want)
		})
	}
}

func TestResolveErrors(t *testing.T) {
	f := newFixture(t)
	empty := f.repo
	full := newFixture(t)
	full.commit(map[string]string{"a": "1\n"})
	blob := full.git(full.repo, "rev-parse", "HEAD:a")
	broken := filepath.Join(t.TempDir(), "broken")
	must(t, os.MkdirAll(filepath.Join(broken, ".git"), 0o755))
	must(t, os.WriteFile(filepath.Join(broken, ".git", "HEAD"), []byte("ref: refs/heads/main\n"), 0o600))
	for _, tc := range []struct {
		name, dir, base string
		want            error
	}{
		{"no directory", filepath.Join(t.TempDir(), "none"), "", ErrNotRepository},
		{"no repository", t.TempDir(), "", ErrNotRepository},
		{"broken", broken, "", ErrNotRepository},
		{"no commits", empty, "", ErrNoCommits},
		{"unknown", full.repo, "nope", ErrUnknownBase},
		{"a blob", full.repo, blob, ErrUnknownBase},
		{"an option", full.repo, "--git-dir", ErrUnknownBase},
		{"unknown in an empty repository", empty, "nope", ErrUnknownBase},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := f.g.Resolve(testContext(t), tc.dir, tc.base)
			var e *Error
			if !errors.Is(err, tc.want) || !errors.As(err, &e) || e.Hint() == "" {
				t.Fatalf("got %v, want %v with a hint", err, tc.want)
			}
			t.Logf("%v (%s)", e, e.Hint())
		})
	}
}

// A repository of someone else is refused in words.
func TestResolveForeignOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("giving a directory away needs root")
	}
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	must(t, os.Chown(f.repo, 65534, 65534))
	must(t, os.Chown(filepath.Join(f.repo, ".git"), 65534, 65534))
	_, err := f.g.Resolve(testContext(t), f.repo, "")
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, ErrNotRepository) || e.Hint() == "" {
		t.Fatalf("got %v", err)
	}
	t.Logf("%v (%s)", e, e.Hint())
}

// What the user's environment says about git does not reach it.
func TestEnvironmentIsScrubbed(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	config := filepath.Join(t.TempDir(), "config")
	must(t, os.WriteFile(config, []byte("[core]\n\tfsmonitor = "+f.canary+"\n\thooksPath = /nonexistent\n[safe]\n\tbareRepository = explicit\n"), 0o600))
	t.Setenv("GIT_DIR", "/nonexistent")
	t.Setenv("GIT_WORK_TREE", "/")
	t.Setenv("GIT_INDEX_FILE", "/nonexistent")
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
	t.Setenv("GIT_CONFIG_VALUE_0", f.canary)
	t.Setenv("GIT_EXTERNAL_DIFF", f.canary)
	t.Setenv("GIT_TRACE", "1")
	f.prepare()
	f.write(f.work(), map[string]string{"a": "2\n"})
	res := f.collect(CollectOptions{})
	must(t, f.intake(res))
	if _, err := os.Stat(f.ran); err == nil {
		t.Error("a program of the environment was run")
	}
}
