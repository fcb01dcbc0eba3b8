package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// ended is a job of a repository that has ended with changes whose branch the
// runner could not bring in.
func ended(t *testing.T, f *fixture) (r *jobs.Record, repo string, git func(...string) string, commit string) {
	t.Helper()
	repo, git = newRepo(t)
	r = f.submit(task(func(w *jobs.Task) { w.Workspace = &jobs.Workspace{Repo: repo} }), Choice{})
	dir, src := r.Current().Dir, sourceOf(r.Spec.Workspace)
	_, err := f.git.Prepare(t.Context(), src, dir)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, workspace.WorkDir, "a"), []byte("2\n"), 0o600))
	res, err := f.git.Collect(t.Context(), dir, src, workspace.CollectOptions{Branch: r.Spec.Workspace.Branch, Message: "two"})
	must(t, err)
	_, err = store.SetExit(dir, jobs.ExitRecord{Version: 1, State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}, Ended: f.now(),
		Result: &jobs.Result{Branch: res.Branch, Base: res.Base, Commit: res.Commit, Tree: res.Tree, TakeError: "read-only"}})
	must(t, err)
	must(t, workspace.Cleanup(dir))
	return r, repo, git, res.Commit
}

// TestTakeBacksOff: what costs something is tried later each time, and at once by
// who asks for it.
func TestTakeBacksOff(t *testing.T) {
	f := newFixture(t)
	r, _, git, commit := ended(t, f)
	file := bundle(r.Current().Dir)
	good, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, good[:len(good)-9], 0o600))
	wait := 10 * time.Second
	for n := 1; n <= 4; n++ {
		v := f.see(r)
		if u := v.Current().Undelivered; u == nil || u.Tries != n || u.Next.Sub(f.now()) != wait || !strings.Contains(v.Note, "not in the repository yet") {
			t.Fatalf("try %d: %+v, %q", n, u, v.Note)
		}
		f.pass(wait - time.Second)
		if v := f.see(r); v.Current().Undelivered.Tries != n || !strings.Contains(v.Note, "cannot be taken in") || !strings.Contains(v.Note, "berth collect "+jobs.Short(r.Spec.ID)) {
			t.Fatalf("after try %d: %+v, %q", n, v.Current().Undelivered, v.Note)
		}
		f.pass(time.Second)
		wait *= 2
	}
	v := f.see(r)
	if _, err := f.Bring(t.Context(), &v, ""); jobs.CodeOf(err) != jobs.CodeInfra || v.Current().Undelivered.Tries != 6 {
		t.Errorf("%v, %+v", err, v.Current().Undelivered)
	}
	must(t, os.WriteFile(file, good, 0o600))
	if v = f.see(r); v.Current().Taken != nil {
		t.Error("it was tried before its time")
	}
	b, err := f.Bring(t.Context(), &v, "")
	must(t, err)
	if !b.Here || b.Collected || git("rev-parse", b.Branch) != commit {
		t.Errorf("%+v", b)
	}
	if v = f.see(r); v.Note != "" || v.Current().Taken == nil {
		t.Errorf("%q", v.Note)
	}
	b, err = f.Bring(t.Context(), &v, "") // again
	must(t, err)
	if !b.Here {
		t.Errorf("%+v", b)
	}
}

// TestSweepDelivers: gc says what is not delivered, and delivers it when that is
// possible; it removes what killed clients have left of it.
func TestSweepDelivers(t *testing.T) {
	f := newFixture(t)
	r, repo, git, commit := ended(t, f)
	old := filepath.Join(r.Current().Dir, "quarantine-1")
	must(t, os.Mkdir(old, 0o700))
	long := time.Now().Add(-48 * time.Hour)
	must(t, os.Chtimes(old, long, long))
	must(t, os.Rename(repo, repo+"-away"))
	sweep := func(dry bool, what string) Left {
		t.Helper()
		found, err := f.Sweep(t.Context(), dry, false)
		must(t, err)
		i := slices.IndexFunc(found, func(l Left) bool { return l.What == what })
		if i < 0 {
			t.Fatalf("no %s in %+v", what, found)
		}
		return found[i]
	}
	if l := sweep(true, LeftRemains); l.Name != old || l.Result != DoneFound {
		t.Errorf("%+v", l)
	}
	if l := sweep(false, LeftRemains); l.Name != old || l.Result != DoneRemoved {
		t.Errorf("%+v", l)
	}
	if l := sweep(false, LeftBranch); l.Result != DoneWaits || !strings.Contains(l.Why, "is gone") || !strings.Contains(l.Why, repo) {
		t.Errorf("%+v", l)
	}
	must(t, os.Rename(repo+"-away", repo))
	if l := sweep(true, LeftBranch); l.Result != DoneFound || git("branch", "--list", "berth/*") != "" {
		t.Errorf("%+v", l)
	}
	if l := sweep(false, LeftBranch); l.Result != DoneBrought || git("rev-parse", r.Spec.Workspace.Branch) != commit {
		t.Errorf("%+v", l)
	}
}

// TestBringKept: the result of a work tree that was kept, and of which no result
// was made, with what the limits of a job leave out.
func TestBringKept(t *testing.T) {
	for _, own := range []bool{true, false} { // whether berth's git directory is there still
		f := newFixture(t)
		repo, git := newRepo(t)
		r := f.submit(task(func(w *jobs.Task) {
			w.Workspace, w.Artifacts = &jobs.Workspace{Repo: repo}, []string{"out/"}
		}), Choice{})
		v := f.see(r)
		if _, err := f.Bring(t.Context(), &v, ""); jobs.CodeOf(err) != jobs.CodeUsage {
			t.Errorf("before its end: %v", err)
		}
		dir, src := r.Current().Dir, sourceOf(r.Spec.Workspace)
		_, err := f.git.Prepare(t.Context(), src, dir)
		must(t, err)
		work := filepath.Join(dir, workspace.WorkDir)
		must(t, os.MkdirAll(filepath.Join(work, "out"), 0o700))
		must(t, os.WriteFile(filepath.Join(work, ".gitignore"), []byte("out/\n"), 0o600))
		must(t, os.WriteFile(filepath.Join(work, "a"), []byte("2\n"), 0o600))
		must(t, os.WriteFile(filepath.Join(work, "out", "model"), []byte("weights"), 0o600))
		big, err := os.Create(filepath.Join(work, "big"))
		must(t, err)
		must(t, big.Truncate(101<<20))
		must(t, big.Close())
		_, err = workspace.Keep(t.Context(), work, work)
		must(t, err)
		if !own {
			must(t, os.RemoveAll(filepath.Join(dir, workspace.GitDir)))
		}
		_, err = store.SetExit(dir, jobs.ExitRecord{Version: 1, State: jobs.StateError, Code: 5, Exit: jobs.Exit{Started: true}, Ended: f.now()})
		must(t, err)

		v = f.see(r)
		b, err := f.Bring(t.Context(), &v, "")
		must(t, err)
		if !b.Collected || !b.Here || git("show", b.Branch+":a") != "2" || len(b.Missing) != 1 || !strings.Contains(b.Missing[0], "--into") {
			t.Errorf("%+v", b)
		}
		if files := git("ls-tree", "-r", "--name-only", b.Branch); files != ".gitignore\na" {
			t.Errorf("the branch has %q", files)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "artifacts", "out", "model")); err != nil || string(got) != "weights" {
			t.Errorf("%q, %v", got, err)
		}
		v = f.see(r)
		if v.State != jobs.StateError || v.Current().Result() == nil || v.Current().Taken == nil {
			t.Errorf("%s: %+v", v.State, v.Current())
		}
		into := filepath.Join(t.TempDir(), "into")
		b, err = f.Bring(t.Context(), &v, into)
		must(t, err)
		if fi, err := os.Stat(filepath.Join(into, "big")); err != nil || fi.Size() != 101<<20 || len(b.Missing) != 0 || !slices.Equal(b.Files, []string{"out/model", "big"}) {
			t.Errorf("%+v, %v", b, err)
		}
	}
}

// TestBringLost: what of a work tree could not be kept, or is elsewhere, is not taken
// for brought.
func TestBringLost(t *testing.T) {
	for _, c := range []struct {
		kept  jobs.KeptTree
		login *jobs.SSHSpec
		want  string
	}{
		{jobs.KeptTree{Dir: "work", Files: 1, Bytes: 40 << 20, Error: "out/large: no space left on device"}, nil, "1 path of 40.0 MiB that could not be kept: out/large: no space left on device"},
		{jobs.KeptTree{Error: "no space left on device"}, nil, "the task's files that could not be kept: no space left on device"},
		{jobs.KeptTree{Dir: "work"}, &jobs.SSHSpec{Host: "cluster"}, "the task's files, untrusted as the task left them, are kept on cluster in "},
		{jobs.KeptTree{Dir: "work"}, nil, ""},
	} {
		f := newFixture(t)
		r, _, _, _ := ended(t, f)
		v := f.see(r)
		v.Current().Exit.Kept, v.Spec.Login = &c.kept, c.login
		b, err := f.Bring(t.Context(), &v, "")
		must(t, err)
		if got := strings.Join(b.Missing, "; "); (c.login == nil && got != c.want) || !strings.Contains(got, c.want) || !b.Here {
			t.Errorf("%+v: %q, want %q", c.kept, got, c.want)
		}
	}
}
