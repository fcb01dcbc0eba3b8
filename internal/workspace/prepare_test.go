package workspace

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The clone is the base, byte for byte, and git inside agrees.
func TestPrepareIsExactAndClean(t *testing.T) {
	f := newFixture(t)
	f.git(f.repo, "config", "core.autocrlf", "true")
	f.git(f.repo, "config", "filter.evil.smudge", f.canary)
	f.git(f.repo, "config", "filter.evil.clean", f.canary)
	f.git(f.repo, "config", "filter.evil.required", "true")
	f.git(f.repo, "config", "uploadpack.packObjectsHook", f.canary)
	for _, hook := range []string{"post-checkout", "pre-commit", "reference-transaction", "post-index-change"} {
		f.write(f.repo, map[string]string{".git/hooks/" + hook: "+x#!/bin/sh\nexec " + quoteSh(f.canary) + "\n"})
	}
	files := map[string]string{
		"crlf.txt": "one\r\ntwo\r\n", "lf.txt": "one\n", "mixed.bat": "a\r\nb\n", "id.c": "$Id$\n", "utf16": "x\n", "blob.bin": "\x00\x01\r\n",
		"exe": "+xrun\n", "link": "->lf.txt", "outside": "->/etc/passwd", "\"q\"\nx": "odd\n", "-dash": "dash\n", "caf\xe9": "latin1\n",
	}
	// Built by plumbing, so that the user's conversions do not touch it.
	attrs := "*.txt text eol=crlf filter=evil\n*.bat eol=crlf\n*.c ident\nutf16 working-tree-encoding=UTF-16LE\n*.bin diff=evil\n"
	files[".gitattributes"] = attrs
	f.commitExact(files)
	before := state(t, f.repo)
	p := f.prepare()
	same(t, "user's repository", state(t, f.repo), before)
	for name, want := range files {
		name := filepath.Join(p.Work, name)
		fi, err := os.Lstat(name)
		must(t, err)
		if target, ok := strings.CutPrefix(want, "->"); ok {
			got, err := os.Readlink(name)
			must(t, err)
			same(t, name, got, target)
			continue
		}
		want, exe := strings.CutPrefix(want, "+x")
		got, err := os.ReadFile(name)
		must(t, err)
		same(t, name, string(got), want)
		same(t, name+" executable", fi.Mode()&0o100 != 0, exe)
	}
	if fi, err := os.Stat(p.Work); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("work tree: %v %v", fi, err)
	}
	same(t, "status", f.git(p.Work, "status", "--porcelain"), "")
	// Also when git has to look at the bytes.
	must(t, os.Remove(filepath.Join(p.Work, ".git", "index")))
	f.git(p.Work, "reset", "-q")
	same(t, "status after a new index", f.git(p.Work, "status", "--porcelain"), "")
	same(t, "branch", f.git(p.Work, "symbolic-ref", "HEAD"), "refs/heads/topic")
	f.git(p.Work, "-c", "core.hooksPath=", "commit", "-q", "--allow-empty", "-m", "x")
	f.git(p.Work, "fsck", "--full")
	res := f.collect(CollectOptions{})
	if res.Changed {
		t.Errorf("an untouched work tree gave %+v", res.Files)
	}
	if _, err := os.Stat(f.ran); err == nil {
		t.Error("a configured program was run")
	}
}

func quoteSh(s string) string { return "'" + s + "'" }

// commitExact commits bytes without any conversion.
func (f *fixture) commitExact(files map[string]string) {
	f.t.Helper()
	f.write(f.repo, files)
	must(f.t, os.MkdirAll(filepath.Join(f.repo, ".git/info"), 0o755))
	info := filepath.Join(f.repo, ".git/info/attributes")
	must(f.t, os.WriteFile(info, []byte(noConversion), 0o600))
	f.git(f.repo, "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null", "add", "-A", "-f")
	f.git(f.repo, "-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "base")
	must(f.t, os.Remove(info))
}

// Nothing in the task's .git leads back to the host.
func TestPrepareIsIndependent(t *testing.T) {
	f := newFixture(t)
	for i := range 3 {
		f.commit(map[string]string{"a": strings.Repeat("x", i+1)})
	}
	f.git(f.repo, "branch", "secret")
	f.git(f.repo, "checkout", "-q", "secret")
	f.commit(map[string]string{"private": "not reachable from the base\n"})
	secret := f.git(f.repo, "rev-parse", "HEAD")
	f.git(f.repo, "checkout", "-q", "topic")
	f.git(f.repo, "remote", "add", "origin", "https://token@example.org/x.git")
	p := f.prepare()
	dotGit := filepath.Join(p.Work, ".git")
	root := filepath.Dir(f.repo)
	must(t, filepath.WalkDir(dotGit, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, host := range []string{root, "token@", "user repo"} {
			if bytes.Contains(data, []byte(host)) {
				t.Errorf("%s has %q in it", name, host)
			}
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if n := fi.Sys().(*syscall.Stat_t).Nlink; n != 1 {
			t.Errorf("%s has %d links", name, n)
		}
		if strings.HasSuffix(name, ".keep") || strings.Contains(name, "alternates") || strings.Contains(name, "FETCH_HEAD") || strings.Contains(name, "/hooks/") {
			t.Errorf("%s is there", name)
		}
		return nil
	}))
	same(t, "history", f.git(p.Work, "rev-list", "--count", "HEAD"), "3")
	if _, err := f.tryGit(p.Work, "cat-file", "-e", secret); err == nil {
		t.Error("a commit that the base does not reach is in the clone")
	}
	must(t, os.Rename(f.repo, f.repo+"-away"))
	f.git(p.Work, "fsck", "--full")
	f.git(p.Work, "log", "-p")
}

// The kinds of repositories a user may have.
func TestPrepareSources(t *testing.T) {
	for name, change := range map[string]func(f *fixture){
		"shallow": func(f *fixture) {
			f.commit(map[string]string{"b": "2\n"})
			f.replaceRepo("clone", "-q", "--depth=1", "file://"+f.repo)
		},
		"bare": func(f *fixture) { f.replaceRepo("clone", "-q", "--bare", f.repo) },
		"borrows from others": func(f *fixture) {
			f.replaceRepo("clone", "-q", "--shared", f.repo)
			f.replaceRepo("clone", "-q", "--shared", f.repo)
		},
		"linked work tree": func(f *fixture) {
			at := f.repo + "-linked"
			f.git(f.repo, "worktree", "add", "-q", "-b", "linked", at)
			f.repo = at
		},
		"detached":                func(f *fixture) { f.git(f.repo, "checkout", "-q", "--detach") },
		"packed refs, many packs": func(f *fixture) { f.git(f.repo, "gc", "-q") },
		"newline in the path":     func(f *fixture) { must(f.t, os.Rename(f.repo, f.repo+"\n#x")); f.repo += "\n#x" },
		"colon in the path":       func(f *fixture) { must(f.t, os.Rename(f.repo, f.repo+":x")); f.repo += ":x" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.commit(map[string]string{"a": "1\n"})
			change(f)
			p := f.prepare()
			same(t, "status", f.git(p.Work, "status", "--porcelain"), "")
			f.git(p.Work, "fsck", "--full")
			f.roundTrip()
		})
	}
}

// replaceRepo makes the user's repository a clone of itself.
func (f *fixture) replaceRepo(args ...string) {
	f.t.Helper()
	to := f.repo + "-clone"
	f.git(filepath.Dir(f.repo), append(args, to)...)
	f.repo = to
}

// roundTrip changes something in a prepared attempt and brings it home.
func (f *fixture) roundTrip() {
	f.t.Helper()
	f.write(f.work(), map[string]string{"new": "thing\n", "a": "changed\n"})
	before := state(f.t, f.src.Repo)
	res := f.collect(CollectOptions{})
	if err := f.intake(res); err != nil {
		f.t.Fatal(err)
	}
	same(f.t, "user's repository", state(f.t, f.src.Repo), before)
	same(f.t, "branch", f.git(f.repo, "rev-parse", testBranch), res.Commit)
	same(f.t, "file", f.git(f.repo, "show", testBranch+":new"), "thing")
	f.git(f.repo, "fsck", "--full")
}

func TestPrepareSHA256(t *testing.T) {
	f := newFixture(t)
	must(t, os.RemoveAll(filepath.Join(f.repo, ".git")))
	f.git(f.repo, "init", "-q", "-b", "topic", "--object-format=sha256")
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	f.roundTrip()
}

func TestPrepareSubmodulesStayEmpty(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	head := f.git(f.repo, "rev-parse", "HEAD")
	f.git(f.repo, "update-index", "--add", "--cacheinfo", "160000,"+head+",lib/sub")
	f.git(f.repo, "commit", "-q", "-m", "sub")
	p := f.prepare()
	same(t, "submodules", p.Submodules, []Path{"lib/sub"})
	entries, err := os.ReadDir(filepath.Join(p.Work, "lib/sub"))
	must(t, err)
	same(t, "entries", len(entries), 0)
	same(t, "status", f.git(p.Work, "status", "--porcelain"), "")
	if res := f.collect(CollectOptions{}); res.Changed {
		t.Errorf("an untouched submodule gave %+v", res.Files)
	}
	must(t, os.RemoveAll(filepath.Join(p.Work, "lib")))
	res := f.collect(CollectOptions{})
	same(t, "statuses", f.statuses(res), map[Path]Status{"lib/sub": Deleted})
	must(t, f.intake(res))
}

func TestPrepareErrors(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a": "work of an attempt\n"})
	if _, err := f.g.Prepare(testContext(t), f.src, f.attempt); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Prepare: %v", err)
	}
	if got, _ := os.ReadFile(filepath.Join(f.work(), "a")); string(got) != "work of an attempt\n" {
		t.Error("a second Prepare touched the work tree")
	}
	for name, tc := range map[string]struct {
		src  Source
		want error
	}{
		"unseen repository": {Source{Repo: "/nonexistent/x.git", Base: f.src.Base}, ErrNotRepository},
		"lost commit":       {Source{Repo: f.src.Repo, Base: strings.Repeat("1", 40)}, ErrUnknownBase},
		"short id":          {Source{Repo: f.src.Repo, Base: f.src.Base[:10]}, ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := f.g.Prepare(testContext(t), tc.src, dir)
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A partial clone lacks blobs, and nothing is fetched behind the user's back.
func TestPreparePartialClone(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.commit(map[string]string{"a": "2\n"})
	f.git(f.repo, "config", "uploadpack.allowFilter", "true")
	src, err := f.g.Resolve(testContext(t), f.repo, "")
	must(t, err)
	f.replaceRepo("clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+f.repo)
	src.Repo = filepath.Join(f.repo, ".git") // such as since it was submitted
	_, err = f.g.Prepare(testContext(t), src, f.attempt)
	var e *Error
	if !errors.As(err, &e) || e.Hint() == "" {
		t.Fatalf("got %v", err)
	}
	t.Logf("%v (%s)", e, e.Hint())
	if left, _ := os.ReadDir(f.attempt); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
