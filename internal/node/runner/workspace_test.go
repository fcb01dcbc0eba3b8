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

	"berth/internal/node/batch"
	"berth/internal/node/container"
	"berth/internal/sys/run"
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
		{"by itself", func(j *job) { _ = os.WriteFile(filepath.Join(j.work(), "go"), nil, 0o600) }, 1},
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
	home := filepath.Join(t.TempDir(), "state")
	j := newJobIn(t, home, "echo b >b.txt; rm -rf "+home+"/jobs/*/*/attempts/0001/"+workspace.GitDir, onRepo(t, dir, func(n *store.New) {
		n.Spec.Done = []jobs.Command{{Shell: "touch " + gone}}
	}))
	code, rec := j.run()
	if code != 5 || rec.State != jobs.StateError || rec.Result != nil || len(rec.Done) != 0 || !strings.Contains(strings.Join(rec.Notes, " "), "the task's files are kept, untrusted") {
		t.Errorf("exit %d, %+v", code, rec)
	}
	if b, err := os.ReadFile(filepath.Join(j.dir, "work", "b.txt")); err != nil || string(b) != "b\n" {
		t.Errorf("kept: %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(j.dir, "work", ".git")); err == nil {
		t.Error("its git directory is kept")
	}
	if _, err := os.Lstat(gone); err == nil {
		t.Error("a done command ran")
	}
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	j := newJob(t, "mkdir out; echo r >out/report.txt; ln -s /etc/passwd out/link.txt", onRepo(t, repo(t), func(n *store.New) { n.Spec.Artifacts = []string{"out/*.txt", "missing"} }))
	code, rec := j.run()
	if code != jobs.CodeOutOfScope || !rec.Partial() || len(rec.Result.LookAt) != 1 || len(rec.Artifacts) != 1 || rec.Artifacts[0] != "out/report.txt" || !strings.Contains(strings.Join(rec.Notes, "; "), "missing") {
		t.Errorf("exit %d, %+v", code, rec)
	}
	if b, err := os.ReadFile(filepath.Join(j.dir, "artifacts", "out", "report.txt")); err != nil || string(b) != "r\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// What does not come back is in the record with its reason, the job is partial,
// and the task's files are kept where no one's git obeys them.
func TestPartial(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command, of string
		kind        workspace.Kind
		code        int
	}{
		"artifact": {"echo b >b.txt; mkdir out; ln -s /nowhere out/model; echo l >out/log; echo /out >.gitignore", jobs.OfArtifacts, workspace.Link, jobs.CodePartial},
		"branch":   {"echo b >b.txt; truncate -s 101M big", jobs.OfBranch, workspace.TooLarge, jobs.CodePartial},
		"failed":   {"truncate -s 101M big; exit 3", jobs.OfBranch, workspace.TooLarge, jobs.CodeTaskFailed},
		"deep":     {"echo /out >.gitignore; mkdir out; p=out; for i in $(seq 210); do p=$p/d; done; mkdir -p $p; echo b >b.txt", jobs.OfArtifacts, workspace.TooDeep, jobs.CodePartial},
		"only":     {"truncate -s 101M big", jobs.OfBranch, workspace.TooLarge, jobs.CodePartial},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, c.command, onRepo(t, repo(t), func(n *store.New) { n.Spec.Artifacts = []string{"out/"} }))
			code, rec := j.run()
			if code != c.code || rec.Code != c.code || len(rec.LeftOut) != 1 || rec.LeftOut[0].Of != c.of || rec.LeftOut[0].Kind != string(c.kind) || rec.LeftOut[0].Paths != 1 {
				t.Fatalf("exit %d, %+v", code, rec)
			}
			if notes := strings.Join(rec.Notes, "; "); !strings.Contains(notes, "left out of the "+c.of) || !strings.Contains(notes, "berth collect ") || !strings.Contains(notes, "untrusted") {
				t.Errorf("notes: %s", notes)
			}
			if rec.Kept == nil || rec.Kept.Dir != "work" || rec.Kept.Error != "" {
				t.Fatalf("kept: %+v", rec.Kept)
			}
			work := filepath.Join(j.dir, rec.Kept.Dir)
			if _, err := os.Lstat(filepath.Join(work, ".git")); err == nil {
				t.Error("the task's .git is there")
			}
			if _, err := os.Lstat(filepath.Join(work, "a.txt")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A checkpoint of any size comes, by the limits of the task only.
func TestLargeArtifacts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits jobs.ResultLimits
		code   int
		files  int
	}{
		"default": {jobs.ResultLimits{}, 0, 2},
		"file":    {jobs.ResultLimits{ArtifactFile: jobs.GiB}, jobs.CodePartial, 1},
		"size":    {jobs.ResultLimits{ArtifactSize: jobs.GiB}, jobs.CodePartial, 1},
		"files":   {jobs.ResultLimits{ArtifactFiles: 1}, jobs.CodePartial, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, "echo /out >.gitignore; mkdir out; truncate -s 1100M out/model.ckpt; echo ok >out/log.txt", onRepo(t, repo(t), func(n *store.New) {
				n.Spec.Artifacts, n.Spec.Results = []string{"out/"}, c.limits
			}))
			code, rec := j.run()
			if code != c.code || rec.ArtifactFiles != c.files || len(rec.Artifacts) != c.files || (len(rec.LeftOut) > 0) != (c.code != 0) || (rec.Kept != nil) != (c.code != 0) {
				t.Fatalf("exit %d, %+v", code, rec)
			}
			if fi, err := os.Lstat(filepath.Join(j.dir, "artifacts", "out", "model.ckpt")); c.code == 0 && (err != nil || fi.Size() != 1100<<20) {
				t.Errorf("%v, %v", fi, err)
			}
		})
	}
}

// work is where the work tree of a job stands that runs.
func (j *job) work() string {
	j.t.Helper()
	found, err := filepath.Glob(filepath.Join(j.tmp, "berth-*", workspace.WorkDir))
	if err != nil || len(found) != 1 {
		j.t.Fatalf("the work tree is not in the node's scratch directory: %q, %v", found, err)
	}
	return found[0]
}

// Someone who asks for the end a second time does not wait for what is collected.
func TestSecondCancel(t *testing.T) {
	r := &attempt{dir: t.TempDir(), jobDir: t.TempDir(), on: run.Local{}, log: slog.New(slog.DiscardHandler), batch: batch.Of("")}
	signals := make(chan os.Signal)
	ctx, cancel := r.inTime(t.Context())
	defer cancel()
	go r.watchSignals(ctx, signals)
	signals <- syscall.SIGTERM
	signals <- syscall.SIGTERM  // the same wish, delivered twice
	signals <- syscall.SIGWINCH // heard when the one before is dealt with
	<-r.stop.Done()
	if ctx.Err() != nil {
		t.Fatal("the first one ended it")
	}
	r.stop.Why().at = r.stop.Why().at.Add(-2 * samePress)
	signals <- syscall.SIGTERM
	select {
	case <-ctx.Done():
	case <-time.After(patient):
		t.Error("it goes on")
	}
}

// When the scheduler leaves no time for it, what a task has left stays where it is.
func TestNoTimeToCollect(t *testing.T) {
	dir := repo(t)
	r := &attempt{dir: t.TempDir(), jobDir: t.TempDir(), scratch: &container.Scratch{Dir: t.TempDir()}, on: run.Local{}, log: slog.New(slog.DiscardHandler)}
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
		r.collect(t.Context(), out)
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
