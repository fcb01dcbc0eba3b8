package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// execRun implements Git.Run.
func execRun(ctx context.Context, c Cmd) error {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.WaitDelay = 5 * time.Second
	return cmd.Run()
}

// fixture is a user's repository and an attempt directory.
type fixture struct {
	t       *testing.T
	g       *Git
	repo    string
	attempt string
	src     Source
	// ran exists when anything planted by a test was run.
	ran    string
	canary string
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{t: t, g: &Git{Run: execRun}, repo: filepath.Join(dir, "user repo"),
		attempt: filepath.Join(dir, "attempt"), ran: filepath.Join(dir, "RAN"), canary: filepath.Join(dir, "canary")}
	for _, d := range []string{f.repo, f.attempt} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script := fmt.Sprintf("#!/bin/sh\necho \"$0 $*\" >> '%s'\ncat\n", f.ran)
	if err := os.WriteFile(f.canary, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	f.git(f.repo, "init", "-q", "-b", "topic")
	t.Cleanup(func() {
		if err := Cleanup(f.attempt); err != nil {
			t.Error(err)
		}
	})
	return f
}

// git is the user's git (and the container's): nothing of the package.
func (f *fixture) git(dir string, args ...string) string {
	f.t.Helper()
	out, err := f.tryGit(dir, args...)
	if err != nil {
		f.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSuffix(out, "\n")
}

func (f *fixture) tryGit(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(testContext(f.t), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=user", "GIT_AUTHOR_EMAIL=u@example.org", "GIT_COMMITTER_NAME=user", "GIT_COMMITTER_EMAIL=u@example.org"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		return errs.String(), err
	}
	return out.String(), nil
}

// write makes files below dir. A content that begins with "->" is the target
// of a symbolic link, "+x" makes an executable file, "/" a directory.
func (f *fixture) write(dir string, files map[string]string) {
	f.t.Helper()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if content == "/" {
			must(f.t, os.MkdirAll(p, 0o755))
			continue
		}
		must(f.t, os.MkdirAll(filepath.Dir(p), 0o755))
		if target, ok := strings.CutPrefix(content, "->"); ok {
			must(f.t, os.RemoveAll(p))
			must(f.t, os.Symlink(target, p))
			continue
		}
		mode := fs.FileMode(0o644)
		content, exe := strings.CutPrefix(content, "+x")
		if exe {
			mode = 0o755
		}
		must(f.t, os.WriteFile(p, []byte(content), mode))
		must(f.t, os.Chmod(p, mode))
	}
}

// commit commits files in the user's repository.
func (f *fixture) commit(files map[string]string) {
	f.t.Helper()
	f.write(f.repo, files)
	f.git(f.repo, "add", "-A", "-f")
	f.git(f.repo, "commit", "-q", "--allow-empty", "-m", "base")
}

func (f *fixture) work() string { return filepath.Join(f.attempt, WorkDir) }

func (f *fixture) prepare() Prepared {
	f.t.Helper()
	var err error
	f.src, err = f.g.Resolve(testContext(f.t), f.repo, "")
	must(f.t, err)
	p, err := f.g.Prepare(testContext(f.t), f.src, f.attempt)
	must(f.t, err)
	return p
}

const testBranch = "berth/fix-it/0123abcd"

func (f *fixture) collect(opts CollectOptions) Result {
	f.t.Helper()
	opts.Branch = testBranch
	// Git is never told where the tree is.
	g := &Git{Run: func(ctx context.Context, c Cmd) error {
		for _, s := range slices.Concat(c.Args, c.Env, []string{c.Dir}) {
			if strings.Contains(s, f.work()) {
				f.t.Errorf("git was given the task's tree: %q in %q", c.Args, c.Dir)
			}
		}
		return f.g.Run(ctx, c)
	}}
	res, err := g.Collect(testContext(f.t), f.attempt, f.src, opts)
	must(f.t, err)
	if _, err := os.Stat(f.ran); err == nil {
		said, _ := os.ReadFile(f.ran)
		f.t.Fatalf("something planted was run: %s", said)
	}
	return res
}

func (f *fixture) intake(res Result) error {
	return f.g.Intake(testContext(f.t), f.src, filepath.Join(f.attempt, BundleFile), testBranch, res)
}

// tree lists a commit as "mode path".
func (f *fixture) tree(dir, commit string) []string {
	f.t.Helper()
	out := []string{}
	for rec := range strings.SplitSeq(f.git(dir, "ls-tree", "-r", "-z", "--format=%(objectmode) %(path)", commit), "\x00") {
		if rec != "" {
			out = append(out, rec)
		}
	}
	return out
}

func (f *fixture) statuses(res Result) map[Path]Status {
	out := map[Path]Status{}
	for _, c := range res.Files {
		out[c.Path] = c.Status
	}
	return out
}

func skippedPaths(res Result) map[Path]string {
	out := map[Path]string{}
	for _, s := range res.Skipped {
		out[s.Path] = s.Reason
	}
	return out
}

// state is a digest of every file below dir, except those that an intake may
// add: objects and the new ref.
func state(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "objects" || strings.HasSuffix(rel, "refs/heads/berth") {
				return fs.SkipDir
			}
			out[rel] = "dir"
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		var data []byte
		if d.Type()&fs.ModeSymlink != 0 {
			s, err := os.Readlink(p)
			if err != nil {
				return err
			}
			data = []byte(s)
		} else if data, err = os.ReadFile(p); err != nil {
			return err
		}
		out[rel] = fmt.Sprintf("%v %x %v", fi.Mode(), sha256.Sum256(data), fi.ModTime().UnixNano())
		return nil
	}))
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Change{})); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// The whole way, as a user sees it.
func TestRoundTrip(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a.txt": "one\ntwo\n", "run.sh": "+x#!/bin/sh\n", "gone": "x\n", "dir/link": "->../a.txt",
		"moved": strings.Repeat("some lines\n", 30), ".gitignore": "*.log\n"})
	f.write(f.repo, map[string]string{"uncommitted": "mine\n", "a.txt": "mine too\n"})
	p := f.prepare()
	if !f.src.Modified || !f.src.Untracked {
		t.Errorf("Resolve did not see the uncommitted changes: %+v", f.src)
	}
	same(t, "branch", p.Branch, "topic")
	before := state(t, f.repo)
	f.write(f.work(), map[string]string{"a.txt": "one\nthree\nfour\n", "new/deep/file": "hi\n", "x.log": "ignored\n", "run.sh": "#!/bin/sh\n"})
	must(t, os.Remove(filepath.Join(f.work(), "gone")))
	must(t, os.Chmod(filepath.Join(f.work(), "run.sh"), 0o644))
	must(t, os.Rename(filepath.Join(f.work(), "moved"), filepath.Join(f.work(), "new/name")))

	scope, err := ParseScope([]string{"new/", "*.txt", "*.sh"})
	must(t, err)
	when := time.Unix(1_700_000_000, 0)
	opts := CollectOptions{Message: "do it\n\nwell", Scope: scope, Time: when}
	res := f.collect(opts)
	same(t, "statuses", f.statuses(res), map[Path]Status{"a.txt": Modified, "gone": Deleted, "new/deep/file": Added, "new/name": Renamed, "run.sh": Modified})
	same(t, "out of scope", res.OutOfScope, []Path{"gone", "moved"})
	same(t, "lines", []int{res.Insertions, res.Deletions}, []int{3, 2})
	same(t, "tree", f.tree(filepath.Join(f.attempt, GitDir), res.Commit),
		[]string{"100644 .gitignore", "100644 a.txt", "120000 dir/link", "100644 new/deep/file", "100644 new/name", "100644 run.sh"})

	again := f.collect(opts)
	same(t, "repeated", again, res)
	var manifest Result
	data, err := os.ReadFile(filepath.Join(f.attempt, ManifestFile))
	must(t, err)
	must(t, json.Unmarshal(data, &manifest))
	for i := range res.Files {
		res.Files[i].id = ""
	}
	same(t, "manifest", manifest, res)

	must(t, f.intake(res))
	must(t, f.intake(res)) // again is the same
	same(t, "user's repository", state(t, f.repo), before)
	same(t, "branch", f.git(f.repo, "rev-parse", "refs/heads/"+testBranch), res.Commit)
	same(t, "commit", f.git(f.repo, "log", "-1", "--format=%an <%ae> %cn %ct%n%B", testBranch), "berth <berth@localhost> berth 1700000000\ndo it\n\nwell\n")
	f.git(f.repo, "fsck", "--strict", "--full")
	f.git(f.repo, "checkout", "-q", "--detach", "-f", f.src.Base)
	f.git(f.repo, "apply", "--index", filepath.Join(f.attempt, DiffFile))
	same(t, "patch", f.git(f.repo, "write-tree"), res.Tree)
	f.git(f.repo, "bundle", "verify", "-q", filepath.Join(f.attempt, BundleFile))
}
