package workspace

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Everything a task can plant so that git on the host runs or reads something.
func TestCollectRunsNothing(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a.txt": "1\n", "lib/f.c": "int x;\n"})
	head := f.git(f.repo, "rev-parse", "HEAD")
	f.git(f.repo, "update-index", "--add", "--cacheinfo", "160000,"+head+",sub")
	f.git(f.repo, "commit", "-q", "-m", "a submodule")
	f.prepare()
	evil := "[core]\n\tfsmonitor = " + f.canary + "\n\thooksPath = .git/hooks\n\tattributesFile = ../attrs\n\tpager = " + f.canary +
		"\n\teditor = " + f.canary + "\n\tsshCommand = " + f.canary + "\n[filter \"evil\"]\n\tclean = " + f.canary + "\n\tsmudge = " + f.canary +
		"\n\tprocess = " + f.canary + "\n\trequired\n[diff \"evil\"]\n\ttextconv = " + f.canary + "\n\tcommand = " + f.canary +
		"\n[diff]\n\texternal = " + f.canary + "\n[gpg]\n\tprogram = " + f.canary + "\n[commit]\n\tgpgsign = true\n[alias]\n\tstatus = !" + f.canary +
		"\n"
	nested := func(at string) {
		f.write(f.work(), map[string]string{at + "/a": "in a nested repository\n"})
		f.git(filepath.Join(f.work(), at), "init", "-q")
		f.git(filepath.Join(f.work(), at), "add", "a")
		f.git(filepath.Join(f.work(), at), "commit", "-q", "-m", "x")
		f.write(f.work(), map[string]string{at + "/.git/config": "[core]\n\trepositoryformatversion = 0\n" + evil})
	}
	nested("sub")        // in place of the submodule
	nested("embedded")   // a new one
	nested("lib")        // in a tracked directory
	nested("embedded/x") // in another
	files := map[string]string{
		".git/config":          "[core]\n\trepositoryformatversion = 0\n\tworktree = /\n" + evil + "[extensions]\n\tworktreeConfig = true\n[include]\n\tpath = /etc/passwd\n",
		".git/config.worktree": evil, ".git/index": "not an index", ".git/index.lock": "", ".git/HEAD.lock": "", ".git/objects/info/alternates": "/etc\n",
		".git/info/attributes": "* filter=evil diff=evil\n", ".git/info/exclude": "*\n", ".git/info/sparse-checkout": "/nothing\n",
		"attrs":          "* filter=evil\n",
		".gitattributes": "* filter=evil diff=evil ident text=auto eol=crlf working-tree-encoding=UTF-16\n*.txt -diff\n",
		"a.txt":          "2\n", "new.c": "$Id$\r\nx\n", "lib/f.c": "int y;\r\n",
		"gitfile/.git": "gitdir: ../embedded/.git\n", "gitfile/a": "1\n", "linked/.git": "->../embedded/.git", "linked/a": "1\n",
		"bare/HEAD": "ref: refs/heads/main\n", "bare/objects/x": "1\n", "bare/refs/x": "1\n", "bare/config": "[core]\n\tbare = true\n" + evil,
		"worktree/HEAD": "ref: refs/heads/main\n", "worktree/commondir": "../embedded/.git\n",
	}
	for _, hook := range []string{"pre-commit", "post-index-change", "reference-transaction", "post-checkout", "fsmonitor-watchman"} {
		files[".git/hooks/"+hook] = "+x#!/bin/sh\nexec " + quoteSh(f.canary) + "\n"
	}
	f.write(f.work(), files)

	res := f.collect(CollectOptions{})
	same(t, "tree", f.tree(filepath.Join(f.attempt, GitDir), res.Commit), []string{
		"100644 .gitattributes", "100644 a.txt", "100644 attrs", "100644 bare/config", "100644 bare/objects/x", "100644 bare/refs/x",
		"100644 embedded/a", "100644 embedded/x/a", "100644 gitfile/a", "100644 lib/a", "100644 lib/f.c", "100644 linked/a", "100644 new.c",
		"160000 sub", "100644 worktree/commondir"})
	why := skippedPaths(res)
	for _, p := range []Path{"bare/HEAD", "embedded/.git", "embedded/x/.git", "gitfile/.git", "lib/.git", "linked/.git", "sub", "worktree/HEAD"} {
		if why[p] == "" {
			t.Errorf("%s is not reported as left out", p)
		}
		delete(why, p)
	}
	same(t, "others left out", why, map[Path]string{})
	// Bytes are kept, and an attribute does not hide them from the diff.
	same(t, "blob", f.git(filepath.Join(f.attempt, GitDir), "cat-file", "blob", res.Commit+":new.c"), "$Id$\r\nx")
	diff, err := os.ReadFile(filepath.Join(f.attempt, DiffFile))
	must(t, err)
	for _, want := range []string{"\n-1\n+2\n", "+int y;\r\n", "+$Id$\r\n"} {
		if !strings.Contains(string(diff), want) {
			t.Errorf("the diff lacks %q", want)
		}
	}
	must(t, f.intake(res))
	if _, err := os.Stat(f.ran); err == nil {
		t.Fatal("Intake ran something")
	}

	// The trap was a live one.
	must(t, os.Remove(filepath.Join(f.work(), ".git", "index.lock")))
	_, _ = f.tryGit(filepath.Join(f.work(), "embedded"), "status")
	if _, err := os.Stat(f.ran); err != nil {
		t.Error("the planted program does not run even with plain git status: this test proves nothing")
	}
}

// What is named as an artifact, what programs leave behind, and what the user
// ignores everywhere is not on the branch, nor judged by the scope; what is tracked is.
func TestCollectApart(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"src.py": "1\n", "tracked.log": "1\n", "old/__pycache__/a": "1\n", "wanted/.gitignore": "!__pycache__/\n!*~\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"src.py": "2\n", "tracked.log": "2\n", "notes.log": "n\n", "out/a/b": "o\n", "outer": "o\n",
		"__pycache__/m.pyc": "x", "pkg/__pycache__/m.pyc": "x", "old/__pycache__/a": "2\n", "old/__pycache__/b": "x", "edited~": "x",
		"wanted/__pycache__/m": "x", "wanted/edited~": "x"})
	scope, err := ParseScope([]string{"src.py"})
	must(t, err)
	res := f.collect(CollectOptions{Scope: scope, Artifacts: []string{"*.log", "out/"}, Ignore: "*~\n"})
	same(t, "changes", f.statuses(res), map[Path]Status{"src.py": Modified, "tracked.log": Modified, "outer": Added, "old/__pycache__/a": Modified,
		"wanted/__pycache__/m": Added, "wanted/edited~": Added})
	same(t, "apart", res.Apart, 2)
	same(t, "out of scope", res.OutOfScope, []Path{"old/__pycache__/a", "outer", "tracked.log", "wanted/__pycache__/m", "wanted/edited~"})
}

func TestGlobalIgnore(t *testing.T) {
	f := newFixture(t)
	home := t.TempDir()
	env := map[string]string{"HOME": home, "PATH": os.Getenv("PATH")}
	get := func() string {
		return f.g.GlobalIgnore(testContext(t), func(n string) (string, bool) { v, ok := env[n]; return v, ok })
	}
	same(t, "none", get(), "")
	f.write(home, map[string]string{".config/git/ignore": "*.bak\n", "xdg/git/ignore": "*.swp\n", "mine": "*.tmp\n"})
	same(t, "in the directory of configurations", get(), "*.bak\n")
	env["XDG_CONFIG_HOME"] = filepath.Join(home, "xdg")
	same(t, "where that is", get(), "*.swp\n")
	f.write(home, map[string]string{".gitconfig": "[core]\n\texcludesFile = ~/mine\n"})
	must(t, os.Rename(filepath.Join(home, "mine"), filepath.Join(home, "dotfile")))
	must(t, os.Symlink("dotfile", filepath.Join(home, "mine")))
	same(t, "core.excludesFile", get(), "*.tmp\n")
	env = nil
	same(t, "no user", get(), "")
}

// What became of the tree, and how it is told.
func TestCollectChanges(t *testing.T) {
	base := map[string]string{"file": "1\n", "dir/a": "a\n", "dir/b": "b\n", "exe": "+x#!\n", "link": "->file", "deep/x/y/z": "z\n", "same": "s\n"}
	host := t.TempDir()
	must(t, os.WriteFile(filepath.Join(host, "a"), []byte("host secret\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(host, "new"), []byte("host secret\n"), 0o644))
	kept := func(less ...string) []string {
		out := []string{}
		for _, l := range []string{"100644 deep/x/y/z", "100644 dir/a", "100644 dir/b", "100755 exe", "100644 file", "120000 link", "100644 same"} {
			keep := true
			for _, p := range less {
				keep = keep && !strings.HasSuffix(l, " "+p)
			}
			if keep {
				out = append(out, l)
			}
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		do      func(t *testing.T, f *fixture, work string)
		want    map[Path]Status
		tree    []string // nil: the base's
		skipped []Path
	}{
		{"nothing", func(*testing.T, *fixture, string) {}, nil, nil, nil},
		{"touched", func(t *testing.T, _ *fixture, work string) {
			must(t, os.Chtimes(filepath.Join(work, "file"), time.Now(), time.Unix(1, 0)))
		}, nil, nil, nil},
		{"changed without changing size and time", func(t *testing.T, _ *fixture, work string) {
			fi, err := os.Stat(filepath.Join(work, "file"))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(work, "file"), []byte("2\n"), 0o644))
			must(t, os.Chtimes(filepath.Join(work, "file"), fi.ModTime(), fi.ModTime()))
		}, map[Path]Status{"file": Modified}, kept(), nil},
		{"exec bit", func(t *testing.T, _ *fixture, work string) {
			must(t, os.Chmod(filepath.Join(work, "exe"), 0o644))
			must(t, os.Chmod(filepath.Join(work, "file"), 0o755))
		}, map[Path]Status{"exe": Modified, "file": Modified},
			[]string{"100644 deep/x/y/z", "100644 dir/a", "100644 dir/b", "100644 exe", "100755 file", "120000 link", "100644 same"}, nil},
		{"modes git does not know", func(t *testing.T, _ *fixture, work string) {
			must(t, os.Chmod(filepath.Join(work, "file"), 0o666|os.ModeSetuid))
			must(t, os.Chmod(filepath.Join(work, "dir"), 0o777|os.ModeSticky))
		}, nil, nil, nil},
		{"file to directory", func(_ *testing.T, f *fixture, work string) {
			must(t, os.Remove(filepath.Join(work, "file")))
			f.write(work, map[string]string{"file/in": "1\n"})
		}, map[Path]Status{"file/in": Renamed},
			[]string{"100644 deep/x/y/z", "100644 dir/a", "100644 dir/b", "100755 exe", "100644 file/in", "120000 link", "100644 same"}, nil},
		{"directory to file", func(_ *testing.T, f *fixture, work string) {
			must(t, os.RemoveAll(filepath.Join(work, "dir")))
			f.write(work, map[string]string{"dir": "quite another\n"})
		}, map[Path]Status{"dir": Added, "dir/a": Deleted, "dir/b": Deleted},
			[]string{"100644 deep/x/y/z", "100644 dir", "100755 exe", "100644 file", "120000 link", "100644 same"}, nil},
		{"directory to a link to a host directory", func(_ *testing.T, f *fixture, work string) {
			must(t, os.RemoveAll(filepath.Join(work, "dir")))
			f.write(work, map[string]string{"dir": "->" + host})
		}, map[Path]Status{"dir": Added, "dir/a": Deleted, "dir/b": Deleted},
			[]string{"100644 deep/x/y/z", "120000 dir", "100755 exe", "100644 file", "120000 link", "100644 same"}, nil},
		{"directory to a link to a directory of the tree", func(_ *testing.T, f *fixture, work string) {
			must(t, os.Rename(filepath.Join(work, "dir"), filepath.Join(work, "dir2")))
			f.write(work, map[string]string{"dir": "->dir2"})
		}, map[Path]Status{"dir": Added, "dir2/a": Renamed, "dir2/b": Renamed},
			[]string{"100644 deep/x/y/z", "120000 dir", "100644 dir2/a", "100644 dir2/b", "100755 exe", "100644 file", "120000 link", "100644 same"}, nil},
		{"file to link, link to file", func(_ *testing.T, f *fixture, work string) {
			must(t, os.Remove(filepath.Join(work, "link")))
			f.write(work, map[string]string{"file": "->/etc/passwd", "link": "plain\n"})
		}, map[Path]Status{"file": TypeChanged, "link": TypeChanged},
			[]string{"100644 deep/x/y/z", "100644 dir/a", "100644 dir/b", "100755 exe", "120000 file", "100644 link", "100644 same"}, nil},
		{"another target", func(_ *testing.T, f *fixture, work string) {
			f.write(work, map[string]string{"link": "->same"})
		}, map[Path]Status{"link": Modified}, kept(), nil},
		{"everything deleted", func(t *testing.T, _ *fixture, work string) {
			entries, err := os.ReadDir(work)
			must(t, err)
			for _, e := range entries { // .git as well
				must(t, os.RemoveAll(filepath.Join(work, e.Name())))
			}
		}, map[Path]Status{"deep/x/y/z": Deleted, "dir/a": Deleted, "dir/b": Deleted, "exe": Deleted, "file": Deleted, "link": Deleted, "same": Deleted}, []string{}, nil},
		{"empty directories", func(_ *testing.T, f *fixture, work string) {
			f.write(work, map[string]string{"empty/er": "/"})
		}, nil, nil, nil},
		{"links that lead nowhere or in a circle", func(_ *testing.T, f *fixture, work string) {
			f.write(work, map[string]string{"self": "->self", "out": "->../../../x", "abs": "->/etc/passwd"})
		}, map[Path]Status{"self": Added, "out": Added, "abs": Added},
			append([]string{"120000 abs"}, append(kept("same"), "120000 out", "100644 same", "120000 self")...), nil},
		{"special files", func(t *testing.T, f *fixture, work string) {
			must(t, syscall.Mkfifo(filepath.Join(work, "fifo"), 0o644))
			must(t, os.Remove(filepath.Join(work, "file")))
			must(t, syscall.Mkfifo(filepath.Join(work, "file"), 0o644))
			listen(t, filepath.Join(work, "sock"))
			f.write(work, map[string]string{"ok": "quite another\n"})
		}, map[Path]Status{"file": Deleted, "ok": Added}, append(kept("file", "same"), "100644 ok", "100644 same"), []Path{"fifo", "file", "sock"}},
		{"git-like names", func(_ *testing.T, f *fixture, work string) {
			f.write(work, map[string]string{"x/.GIT/config": "1\n", ".git /a": "1\n", "git~1": "1\n", ".g\u200cit": "1\n", "a\\.git": "1\n", ".git::$INDEX_ALLOCATION/x": "1\n",
				".gitx": "fine\n", "x.git/HEAD": "fine\n"})
		}, map[Path]Status{".gitx": Added, "x.git/HEAD": Added}, append(append([]string{"100644 .gitx"}, kept()...), "100644 x.git/HEAD"),
			[]Path{".git ", ".git::$INDEX_ALLOCATION", ".g\u200cit", "a\\.git", "git~1", "x/.GIT"}},
		{"what git reads", func(_ *testing.T, f *fixture, work string) {
			f.write(work, map[string]string{".gitmodules": "[submodule \"../x\"]\n\tpath = x\n\turl = --upload-pack=x\n", "n/.gitmodules": "->../file", "m/.gitmodules": "[submodule \"ok\"]\n\tpath = ok\n\turl = -x\n",
				"ok": "1\n"})
		}, map[Path]Status{"ok": Added}, append(kept("same"), "100644 ok", "100644 same"), []Path{".gitmodules", "m/.gitmodules", "n/.gitmodules"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			f.commit(base)
			f.prepare()
			tc.do(t, f, f.work())
			res := f.collect(CollectOptions{})
			if tc.want == nil {
				tc.want = map[Path]Status{}
			}
			same(t, "changes", f.statuses(res), tc.want)
			got := []Path{}
			for _, s := range res.Skipped {
				got = append(got, s.Path)
			}
			same(t, "left out", got, append([]Path{}, tc.skipped...))
			same(t, "changed", res.Changed, len(tc.want) > 0)
			_, err := os.Stat(filepath.Join(f.attempt, BundleFile))
			same(t, "bundle", err == nil, res.Changed)
			if !res.Changed {
				return
			}
			same(t, "tree", f.tree(filepath.Join(f.attempt, GitDir), res.Commit), tc.tree)
			must(t, f.intake(res))
			f.git(f.repo, "fsck", "--strict")
			same(t, "no host bytes", strings.Contains(f.git(f.repo, "show", testBranch), "host secret"), false)
		})
	}
}

func listen(t *testing.T, path string) {
	t.Helper()
	t.Chdir(filepath.Dir(path)) // the name of a socket is short
	l, err := net.Listen("unix", filepath.Base(path))
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, l.Close())
}

func TestCollectOddNames(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	names := []string{"new\nline", `"quoted"`, `back\slash`, "-dash", "--help", ":(glob)x", ":!x", "tab\there", " lead", "trail ", "caf\xe9", "\xff\xfe", "ünï", "*", "[x]", "a b", "$(x)", "`x`", "\x01\x7f",
		"dir\n/in\xe9", strings.Repeat("n", 255)}
	files := map[string]string{}
	for _, n := range names {
		files[n] = "of " + n
	}
	f.write(f.work(), files)
	res := f.collect(CollectOptions{})
	same(t, "left out", skippedPaths(res), map[Path]string{})
	want := map[Path]Status{}
	for _, n := range names {
		want[Path(n)] = Added
	}
	same(t, "changes", f.statuses(res), want)
	data, err := os.ReadFile(filepath.Join(f.attempt, ManifestFile))
	must(t, err)
	var back Result
	must(t, json.Unmarshal(data, &back))
	same(t, "changes in the manifest", f.statuses(back), want)
	must(t, f.intake(res))
	f.git(f.repo, "checkout", "-q", testBranch)
	for _, n := range names {
		got, err := os.ReadFile(filepath.Join(f.repo, n))
		must(t, err)
		same(t, n, string(got), "of "+n)
	}
}

// Ignore rules are git's, of the task's tree and of the user's info/exclude.
func TestCollectIgnores(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{".gitignore": "build/\n*.o\n!keep.o\n/top\n", "build/tracked": "1\n", "x.o": "1\n"})
	must(t, os.MkdirAll(filepath.Join(f.repo, ".git/info"), 0o755))
	must(t, os.WriteFile(filepath.Join(f.repo, ".git/info/exclude"), []byte("private\n"), 0o600))
	f.prepare()
	f.write(f.work(), map[string]string{
		"build/new": "1\n", "build/sub/new": "1\n", "build/tracked": "2\n", "x.o": "2\n", "y.o": "1\n", "keep.o": "1\n", "top": "1\n", "d/top": "1\n",
		"d/build/z": "1\n", "d/.gitignore": "*\n!ok\n!.gitignore\n", "d/ok": "1\n", "d/no": "1\n", "private": "1\n", "e/build": "a file\n",
		"sneaky/.gitignore": "->../../../outside", "sneaky/a": "1\n", ":o.o": "1\n", "l/.gitignore/x": "a directory\n",
	})
	must(t, os.WriteFile(filepath.Join(filepath.Dir(f.repo), "outside"), []byte("*\n"), 0o600))
	res := f.collect(CollectOptions{})
	same(t, "changes", f.statuses(res), map[Path]Status{"build/tracked": Modified, "x.o": Modified, "keep.o": Added,
		"d/.gitignore": Added, "d/ok": Added, "e/build": Added, "sneaky/.gitignore": Added, "sneaky/a": Added, "l/.gitignore/x": Added})
	same(t, "as git status sees it", strings.Split(f.git(f.work(), "-c", "core.quotePath=false", "status", "--porcelain", "-uall"), "\n"), []string{
		" M build/tracked", " M x.o", "?? d/.gitignore", "?? d/ok", "?? e/build", "?? keep.o", "?? l/.gitignore/x", "?? sneaky/.gitignore", "?? sneaky/a"})
}

func TestCollectLimits(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"grows": "1\n", "a": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"grows": strings.Repeat("x", 101), "big": strings.Repeat("y", 101), "fits": strings.Repeat("z", 100), "d/1": "1\n", "d/2": "2\n", "d/3": "3\n", "a": "2\n"})
	res := f.collect(CollectOptions{Limits: Limits{FileBytes: 100, NewFiles: 4}})
	same(t, "changes", f.statuses(res), map[Path]Status{"a": Modified, "fits": Added, "d/1": Added, "d/2": Added})
	same(t, "more", res.SkippedMore, 0)
	res = f.collect(CollectOptions{Limits: Limits{FileBytes: 100, TotalBytes: 102, NewFiles: 2}})
	same(t, "changes", f.statuses(res), map[Path]Status{"a": Modified, "fits": Added})
	same(t, "more", res.SkippedMore, 2)
	must(t, f.intake(res))
	same(t, "left out stays", f.git(f.repo, "show", testBranch+":grows"), "1")

	// A sparse giant costs nothing.
	must(t, os.Truncate(filepath.Join(f.work(), "big"), 1<<40))
	res = f.collect(CollectOptions{})
	if why := skippedPaths(res); why["big"] == "" || len(why) != 1 {
		t.Errorf("left out: %v", why)
	}
}

func TestCollectDeepTree(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	// Deeper than a path can be long.
	script := `i=0; while [ $i -lt 60 ]; do d=` + strings.Repeat("d", 100) + `; mkdir $d && cd -P $d && echo $i > f || exit 1; i=$((i+1)); done`
	cmd := exec.CommandContext(testContext(t), "sh", "-c", script)
	cmd.Dir = f.work()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("no deep tree here: %v %s", err, out)
	}
	res := f.collect(CollectOptions{})
	same(t, "files", len(res.Files), 40)
	same(t, "left out", len(res.Skipped), 1)
	must(t, f.intake(res))
}

func TestCollectWorkReplaced(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	must(t, os.RemoveAll(f.work()))
	must(t, os.Symlink("/etc", f.work()))
	_, err := f.g.Collect(testContext(t), f.attempt, f.src, CollectOptions{Branch: testBranch})
	if err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(f.work()))
	if _, err = f.g.Collect(testContext(t), f.attempt, f.src, CollectOptions{Branch: testBranch}); err == nil {
		t.Error("a missing work tree was collected")
	}
}

// A base whose .gitmodules git would refuse today is the user's own affair.
func TestCollectOverOddBase(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n", ".gitmodules": "[submodule \"../x\"]\n\tpath = x\n\turl = -x\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a": "2\n"})
	res := f.collect(CollectOptions{})
	same(t, "changes", f.statuses(res), map[Path]Status{"a": Modified})
	must(t, f.intake(res))
}

func TestCollectMessageAndIdentity(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a": "2\n"})
	res := f.collect(CollectOptions{Message: "x\x00\nfrom 0000\nM 100644 inline evil\ndata <<EOF\nü\xff", Author: Identity{"A <b>\nx", "c\n@>d"}})
	must(t, f.intake(res))
	same(t, "commit", f.git(f.repo, "log", "-1", "--format=%an|%ae|%B", testBranch), "A bx|c@d|x\nfrom 0000\nM 100644 inline evil\ndata <<EOF\nü\ufffd\n")
	for _, branch := range []string{"", "-x", "a..b", "x\nfrom y", "a b", "x.lock", "/x", "x/", "@{", "x\x00"} {
		if _, err := f.g.Collect(testContext(t), f.attempt, f.src, CollectOptions{Branch: branch}); err == nil {
			t.Errorf("branch %q was accepted", branch)
		}
	}
}
