package runner

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// repo makes a repository with one commit.
func repo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", ".")
	git(t, dir, "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-q", "-m", "begin")
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// onRepo gives a job a workspace.
func onRepo(t *testing.T, dir string, change func(*store.New)) func(*store.New) {
	src, err := workspace.New(run.Local{}).Resolve(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return func(n *store.New) {
		n.Spec.Workspace = &jobs.WorkspaceSpec{Repo: src.Top, GitDir: src.Repo, Base: src.Base, BaseRef: src.Branch, Branch: jobs.BranchName("a-test", n.Spec.ID)}
		if change != nil {
			change(n)
		}
	}
}

// However a job ends, what it had changed comes back.
func TestChangesComeBack(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(j *job)
		code int
	}{
		{"by itself", func(j *job) { _ = os.WriteFile(filepath.Join(j.dir, "work", "go"), nil, 0o600) }, 1},
		{"cancelled", func(j *job) { j.cancel(); j.signal(syscall.SIGTERM) }, 130},
		{"guest killed", (*job).killGuest, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := repo(t)
			j := newJob(t, "echo b >b.txt; echo ready; until [ -e go ]; do sleep 0.02; done; rm go; exit 1", onRepo(t, dir, nil)).start()
			j.says("ready")
			c.end(j)
			code, rec := j.wait()
			if code != c.code || rec.Result == nil || !rec.Result.Taken || rec.Result.Files != 1 {
				t.Fatalf("exit %d, %+v\n%s", code, rec, j.read(store.FileRuntime))
			}
			if got := git(t, dir, "show", rec.Result.Branch+":b.txt"); got != "b" {
				t.Errorf("b.txt holds %q", got)
			}
			if got := git(t, dir, "status", "--porcelain"); got != "" {
				t.Errorf("the user's work tree: %s", got)
			}
			for _, name := range []string{"work", workspace.GitDir} {
				if _, err := os.Lstat(filepath.Join(j.dir, name)); err == nil {
					t.Errorf("%s is left", name)
				}
			}
		})
	}
}

// done runs on a clone of the result, and not on what is ignored in it.
func TestDone(t *testing.T) {
	t.Parallel()
	dir := repo(t)
	command := func(s string) jobs.Command { return jobs.Command{Shell: s} }
	j := newJob(t, "echo '*.o' >.gitignore; echo b >b.txt; touch x.o", onRepo(t, dir, func(n *store.New) {
		n.Spec.Done = []jobs.Command{command("test -e b.txt; test ! -e x.o && echo clean"), command("echo c >c.txt; exit 6"), command("echo never")}
	}))
	code, rec := j.run()
	if code != 1 || rec.State != jobs.StateFailed || len(rec.Done) != 2 || rec.Done[1].Exit.Code != 6 || rec.Result.Files != 2 {
		t.Errorf("exit %d, %+v", code, rec)
	}
	if got := j.read(store.FileDoneStdout); got != "clean\n" {
		t.Errorf("done said %q", got)
	}
	if got := git(t, dir, "ls-tree", "--name-only", rec.Result.Branch); strings.Contains(got, "c.txt") {
		t.Errorf("on the branch: %s", got)
	}
}

// A result that cannot be collected fails the job, keeps the files and lets no
// done command judge something else.
func TestCollectFails(t *testing.T) {
	t.Parallel()
	dir := repo(t)
	gone := filepath.Join(t.TempDir(), "gone")
	j := newJob(t, "echo b >b.txt; rm -rf ../"+workspace.GitDir, onRepo(t, dir, func(n *store.New) {
		n.Spec.Done = []jobs.Command{{Shell: "touch " + gone}}
	}))
	code, rec := j.run()
	if code != 5 || rec.State != jobs.StateError || rec.Result != nil || len(rec.Done) != 0 || !strings.Contains(strings.Join(rec.Notes, " "), "the task's files are kept in") {
		t.Errorf("exit %d, %+v", code, rec)
	}
	if b, err := os.ReadFile(filepath.Join(j.dir, "work", "b.txt")); err != nil || string(b) != "b\n" {
		t.Errorf("kept: %q, %v", b, err)
	}
	if _, err := os.Lstat(gone); err == nil {
		t.Error("a done command ran")
	}
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	j := newJob(t, "mkdir out; echo r >out/report.txt; ln -s /etc/passwd out/link.txt", onRepo(t, repo(t), func(n *store.New) { n.Spec.Artifacts = []string{"out/*.txt", "missing"} }))
	code, rec := j.run()
	if code != jobs.CodeOutOfScope || len(rec.Artifacts) != 1 || rec.Artifacts[0] != "out/report.txt" || !strings.Contains(strings.Join(rec.Notes, "; "), "missing") {
		t.Errorf("exit %d, %+v", code, rec)
	}
	if b, err := os.ReadFile(filepath.Join(j.dir, "artifacts", "out", "report.txt")); err != nil || string(b) != "r\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// When the scheduler leaves no time for it, what a task has left stays where it is.
func TestNoTimeToCollect(t *testing.T) {
	dir := repo(t)
	r := &attempt{dir: t.TempDir(), jobDir: t.TempDir(), on: run.Local{}, log: slog.New(slog.DiscardHandler)}
	r.stop.init()
	var n store.New
	onRepo(t, dir, nil)(&n)
	r.spec = n.Spec
	src := workspace.Source{Repo: r.spec.Workspace.GitDir, Top: r.spec.Workspace.Repo, Base: r.spec.Workspace.Base}
	if _, err := r.git().Prepare(t.Context(), src, r.dir); err != nil {
		t.Fatal(err)
	}
	// The order comes while git is at work, and git takes for ever.
	r.on = hanging{}
	time.AfterFunc(50*time.Millisecond, func() { r.stop.set(why{state: jobs.StateCancelled, hurry: 1100 * time.Millisecond}) })
	out, done := &outcome{}, make(chan struct{})
	go func() {
		defer close(done)
		r.collect(t.Context(), r.git(), src, out)
	}()
	select {
	case <-done:
	case <-time.After(patient):
		t.Fatal("it takes its time")
	}
	if out.err == nil || !out.kept || out.result != nil {
		t.Errorf("%+v", out)
	}
}

// hanging is a place where programs end only when they are told to.
type hanging struct{}

func (hanging) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	return run.Local{}.Start(ctx, jobs.Cmd{Argv: []string{"sleep", "60"}, Dir: c.Dir})
}
