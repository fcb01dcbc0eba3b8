package replica_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/images"
	"berth/internal/network/wayout"
	"berth/internal/remote/replica"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// TestSurvey: what is asked in one execution.
func TestSurvey(t *testing.T) {
	p := newPair(t)
	sif := filepath.Join(p.host.Home, "image.sif")
	must(t, os.WriteFile(sif, siftest.New(uuid.New(), nil), 0o600))
	must(t, os.MkdirAll(filepath.Join(p.home, "overlays", "work"), 0o700))
	must(t, os.WriteFile(filepath.Join(p.home, "overlays", "work", "mark.json"), []byte(`{"version":1,"name":"work","driver":"ext3"}`), 0o600))
	p.host.Calls()
	g, err := p.site.Survey(t.Context(), replica.Question{Image: sif, Overlay: "work", Copy: strings.Repeat("a", 24)})
	must(t, err)
	if got := p.host.Calls(); got != "survey" {
		t.Errorf("executions: %s", got)
	}
	real, err := filepath.EvalSymlinks(p.host.Home)
	must(t, err)
	if g.Home != filepath.Join(real, ".local/state/berth") || g.Image.Missing || g.Image.Err() != nil || g.Mark == nil || g.Mark.Driver != jobs.DriverExt3 || len(g.Tips) > 0 ||
		g.Identity.Home != p.host.Home || g.Identity.Shell != "/bin/zsh" || g.UID != os.Getuid() {
		t.Errorf("%+v", g)
	}
	if fi, err := os.Stat(g.Node); err != nil || fi.Mode()&0o100 == 0 || filepath.Dir(g.Node) != filepath.Join(g.Home, "bin") {
		t.Errorf("%s: %v", g.Node, err)
	}
	for path, missing := range map[string]bool{"/nowhere.sif": true, "/etc/passwd": false} {
		g, err := p.site.Survey(t.Context(), replica.Question{Image: path})
		must(t, err)
		if g.Image.Missing != missing || (g.Image.Err() == nil) != missing {
			t.Errorf("%s: %+v", path, g.Image)
		}
	}
	must(t, os.Chmod(p.home, 0o755))
	if _, err := p.site.Survey(t.Context(), replica.Question{}); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "ada@login: ") {
		t.Errorf("a state directory that is open to others: %v", err)
	}
}

// TestThereAndBack: a job's record goes there whole, and comes back as it grows.
func TestThereAndBack(t *testing.T) {
	p := newPair(t)
	must(t, p.put())
	there, err := store.LoadDir(store.JobDirOf(p.far))
	must(t, err)
	if s := there.Spec; s.ID != p.n.Spec.ID || s.Login != nil || s.LoginHome != "" || s.Host != "laptop" || there.Current().Info.ID != p.n.Attempt.ID {
		t.Errorf("%+v", there)
	}
	if b, err := os.ReadFile(store.ScriptPath(p.far)); err != nil || string(b) != "#!/bin/sh\necho there\n" {
		t.Errorf("%q, %v", b, err)
	}
	if got, err := store.TakeSecrets(store.JobDirOf(p.far), []string{"TOKEN"}, false); err != nil || len(got) != 1 || got[0] != "TOKEN="+secret {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(p.rec.Current().Dir, "env")); err == nil {
		t.Error("the secrets are here, too")
	}
	p.host.Calls()
	must(t, p.round())
	if s := jobs.StateOf(p.rec); s != jobs.StateSubmitting {
		t.Error(s)
	}
	_, err = store.SetSubmitted(p.rec.Current().Dir, jobs.Submitted{Version: 1, Time: time.Now(), Handle: jobs.Handle{Version: 1, NativeID: "42"}})
	must(t, err)
	p.claim(time.Now().Add(5 * time.Hour)) // its clock is wrong
	p.write("stdout", "one\n")
	must(t, store.Beat(p.far, 1, time.Now()))
	aged := time.Now()
	must(t, os.Chtimes(filepath.Join(p.far, "beat"), time.Time{}, aged.Add(-7*time.Second)))
	must(t, p.round())
	if s := jobs.StateOf(p.rec); s != jobs.StateRunning {
		t.Error(s)
	}
	if age := time.Since(p.rec.Current().Beat); age < 6*time.Second || age > 9*time.Second+time.Since(aged) {
		t.Errorf("the beat is %v old", age)
	}
	beat := p.rec.Current().Beat
	p.write("stdout", "two\n")
	must(t, p.round())
	if b, _ := os.ReadFile(filepath.Join(p.rec.Current().Dir, "stdout")); string(b) != "one\ntwo\n" {
		t.Errorf("%q", b)
	}
	if !p.rec.Current().Beat.Equal(beat) {
		t.Error("one beat counted as two")
	}
	// The wish for its end goes there, and what was made there of it comes here.
	_, err = store.SetCancel(p.rec.Dir, jobs.Cancel{Version: 1, By: "ada"})
	must(t, err)
	must(t, p.round())
	if !store.Cancelled(store.JobDirOf(p.far)) {
		t.Error("the wish for its end did not arrive")
	}
	if there, err := store.LoadDir(store.JobDirOf(p.far)); err != nil || there.Current().Submitted == nil || there.Current().Submitted.Handle.NativeID != "42" {
		t.Errorf("the handle did not arrive: %v", err)
	}
	if got := p.host.Calls(); got != "round round round round" {
		t.Errorf("executions: %s", got)
	}
}

// TestNetwork: what was decided comes here as it grows, and words that the user adds here go there.
func TestNetwork(t *testing.T) {
	p := newPair(t)
	must(t, p.put())
	act := jobs.NetworkAddition{Version: 1, ID: "01890000-0000-7000-8000-000000000001", By: "ada", Words: []string{"b.example"}}
	must(t, store.AddAllow(p.rec.Dir, act))
	p.claim(time.Now())
	p.write(store.FileNetwork, "{}\n")
	for range 2 {
		must(t, p.round())
		got, err := store.Allows(store.JobDirOf(p.far), nil)
		if err != nil || len(got) != 1 || got[0].Words[0] != "b.example" || got[0].By != "ada" {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	p.write(store.FileNetwork, "{}\n")
	must(t, p.round())
	if b, err := os.ReadFile(filepath.Join(p.rec.Current().Dir, store.FileNetwork)); string(b) != "{}\n{}\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestNoRelay: that a job waits for a relay there is seen here, without what a relay would need.
func TestNoRelay(t *testing.T) {
	p := newPair(t)
	must(t, p.put())
	p.claim(time.Now())
	since := time.Now().Add(-time.Minute)
	state := func(relay string) {
		t.Helper()
		p.write("relay.json", `{"version":1,"socket":"/there","secret":"s3cret","since":"`+since.UTC().Format(time.RFC3339)+`"`+relay+`}`)
	}
	state("")
	var before []byte
	for range 2 {
		must(t, p.round())
		st, err := wayout.Peek(p.rec.Current().Dir)
		if err != nil || st == nil || st.Relay != nil || st.Since.Sub(since).Abs() > 5*time.Second {
			t.Fatalf("%+v, %v", st, err)
		}
		b, err := os.ReadFile(filepath.Join(p.rec.Current().Dir, "relay.json"))
		if err != nil || strings.Contains(string(b), "s3cret") || strings.Contains(string(b), "/there") || before != nil && string(b) != string(before) {
			t.Errorf("%s, %v", b, err)
		}
		before = b
	}
	must(t, os.Remove(filepath.Join(p.far, "relay.json")))
	state(`,"relay":{"host":"login","pid":1}`)
	must(t, p.round())
	if st, err := wayout.Peek(p.rec.Current().Dir); st != nil || err != nil {
		t.Errorf("there is one: %+v, %v", st, err)
	}
}

func TestEnd(t *testing.T) {
	p := newPair(t)
	must(t, p.put())
	p.ends()
	p.host.Calls()
	must(t, p.round())
	p.same()
	if got := p.host.Calls(); got != "round artifacts" {
		t.Errorf("executions: %s", got)
	}
	// What is written once stays, whatever is said later.
	must(t, os.Remove(filepath.Join(p.far, "exit.json")))
	p.exit(func(x *jobs.ExitRecord) { x.State = jobs.StateFailed })
	must(t, p.round())
	if s := jobs.StateOf(p.rec); s != jobs.StateCompleted {
		t.Errorf("it became %s", s)
	}
}

// TestCutAnswer: wherever an answer breaks off, the record stays readable, no
// end is believed before everything is here, and the next round goes on.
func TestCutAnswer(t *testing.T) {
	p := newPair(t)
	must(t, p.put())
	p.ends()
	var size int
	p.host.Set(mirrorFault("round", func(b []byte) []byte { size = len(b); return b }))
	blank := t.TempDir()
	must(t, os.CopyFS(filepath.Join(blank, "job"), os.DirFS(p.rec.Dir)))
	must(t, p.round())
	p.same()
	for n := 1; n < size; n += 1 + size/97 {
		must(t, os.RemoveAll(p.rec.Dir))
		must(t, os.CopyFS(p.rec.Dir, os.DirFS(filepath.Join(blank, "job"))))
		p.rec, _ = store.LoadDir(p.rec.Dir)
		f := mirrorFault("round", nil)
		f.CutOut = n
		p.host.Set(f)
		err := p.round()
		if x := p.rec.Current().Exit; x != nil {
			p.same() // the last line of all is the only one that is missing
		} else if err == nil {
			t.Errorf("cut after %d of %d bytes: no error", n, size)
		}
		p.host.Set(mirrorFault("none", nil))
		if jobs.StateOf(p.rec).Final() {
			continue
		}
		if err := p.round(); err != nil {
			t.Fatalf("after a cut at %d: %v", n, err)
		}
		p.same()
	}
	// The artifacts come before the end, too.
	must(t, os.RemoveAll(p.rec.Dir))
	must(t, os.CopyFS(p.rec.Dir, os.DirFS(filepath.Join(blank, "job"))))
	p.rec, _ = store.LoadDir(p.rec.Dir)
	f := mirrorFault("artifacts", nil)
	f.CutOut = 700
	p.host.Set(f)
	if err := p.round(); err == nil || p.rec.Current().Exit != nil {
		t.Errorf("an end without its artifacts: %v", err)
	}
	p.host.Set(mirrorFault("none", nil))
	must(t, p.round())
	p.same()
}

// TestCutPut: what was cut off is no record there, and the next try makes it.
func TestCutPut(t *testing.T) {
	p := newPair(t)
	none := func(what string) {
		t.Helper()
		if _, err := os.Stat(store.JobDirOf(p.far)); err == nil {
			t.Errorf("%s: there is a record", what)
		}
		out, _ := exec.CommandContext(t.Context(), "grep", "-rl", secret, filepath.Join(p.home, "jobs")).Output()
		if len(out) > 0 {
			t.Errorf("%s: the secret is in %s", what, out)
		}
	}
	for _, n := range []int{-1, 1, 100, 400, 700} {
		f := mirrorFault("put", nil)
		f.CutIn = n
		p.host.Set(f)
		if err := p.put(); err == nil || replica.Never(err) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
		none("cut off")
	}
	f := mirrorFault("put", nil)
	f.Down = true
	p.host.Set(f)
	if err := p.put(); !replica.Never(err) {
		t.Errorf("%v", err)
	}
	// The answer is lost: doing it again changes nothing, and it can be undone.
	f = mirrorFault("put", nil)
	f.Lost = true
	p.host.Set(f)
	if err := p.put(); err == nil || replica.Never(err) {
		t.Errorf("%v", err)
	}
	p.host.Set(mirrorFault("none", nil))
	must(t, p.put())
	other := p.n
	other.Attempt.ID = "01a1feba-0000-7000-8000-000000000000"
	if err := p.site.Put(t.Context(), p.home, other, ""); err == nil || !strings.Contains(err.Error(), "another record") {
		t.Errorf("%v", err)
	}
	for range 2 {
		must(t, p.site.Remove(t.Context(), p.home, p.n.Spec.ID))
		none("removed")
	}
}

// TestRemoveIsThisJobs: a directory whose record says that it is another job's
// is left alone.
func TestRemoveIsThisJobs(t *testing.T) {
	p := newPair(t)
	must(t, p.put())
	other := newPair(t)
	dir := filepath.Join(filepath.Dir(filepath.Dir(store.JobDirOf(p.far))), other.n.Spec.ID[len(other.n.Spec.ID)-2:])
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.Rename(store.JobDirOf(p.far), filepath.Join(dir, other.n.Spec.ID)))
	if err := p.site.Remove(t.Context(), p.home, other.n.Spec.ID); err == nil {
		t.Error("it was removed")
	}
	if _, err := os.Stat(filepath.Join(dir, other.n.Spec.ID, "job.json")); err != nil {
		t.Error(err)
	}
	if err := p.site.Remove(t.Context(), p.home, "../../x"); err == nil {
		t.Error("that is no job")
	}
}

// TestTwoClients: two that ask at once write the same.
func TestTwoClients(t *testing.T) {
	p := newPair(t)
	must(t, p.put())
	p.ends()
	recs, sites := make([]*jobs.Record, 4), make([]*replica.Site, 4)
	for i := range recs {
		var err error
		recs[i], err = store.LoadDir(p.rec.Dir)
		must(t, err)
		sites[i] = p.newSite()
	}
	var wg sync.WaitGroup
	for i := range recs {
		wg.Go(func() {
			// A moment in which the other one was faster is no failure of the job.
			for range 50 {
				if err := sites[i].Round(t.Context(), recs[i:i+1])[0]; err == nil {
					return
				}
			}
			t.Errorf("client %d never gets it", i)
		})
	}
	wg.Wait()
	must(t, p.round())
	p.same()
}

// TestCopy: a second job sends only what is new of the repository.
func TestCopy(t *testing.T) {
	dir, commit := repository(t)
	base := commit(strings.Repeat("some text that is long enough to be seen\n", 2000))
	git := workspace.New(run.Local{})
	src, err := git.Resolve(t.Context(), dir, "")
	must(t, err)
	with := func(base string) *pair {
		return newPair(t, func(s *jobs.Spec) {
			s.Workspace = &jobs.WorkspaceSpec{Repo: src.Top, GitDir: src.Repo, Base: base, Branch: "berth/fix/1"}
		})
	}
	p := with(base)
	for _, n := range []int{1, 30, 200} { // a cut pack is no copy
		f := mirrorFault("put", nil)
		f.CutEnd = n
		p.host.Set(f)
		if err := p.put(); err == nil {
			t.Errorf("cut after %d", n)
		}
	}
	p.host.Set(mirrorFault("none", nil))
	must(t, p.put())
	there, err := store.LoadDir(store.JobDirOf(p.far))
	must(t, err)
	w := there.Spec.Workspace
	if !w.Copy || w.Repo != "" || w.Base != base || !strings.HasPrefix(w.GitDir, p.home+"/repos/") {
		t.Fatalf("%+v", w)
	}
	second := commit("more")
	work := t.TempDir()
	q := with(second)
	q.host, q.home = p.host, p.home
	q.site = q.newSite()
	var sent bytes.Buffer
	must(t, git.Pack(t.Context(), src, []string{base}, &sent))
	if sent.Len() > 600 {
		t.Errorf("%d bytes for one small commit", sent.Len())
	}
	must(t, q.put())
	_, err = git.Prepare(t.Context(), workspace.Source{Repo: w.GitDir, Base: second}, work)
	must(t, err)
	if b, err := os.ReadFile(filepath.Join(work, "work", "file-2")); err != nil || string(b) != "more" {
		t.Errorf("%q, %v", b, err)
	}
	tips, err := git.Tips(t.Context(), w.GitDir)
	if err != nil || len(tips) != 2 {
		t.Errorf("%q, %v", tips, err)
	}

	// A shallow repository has a copy of its own.
	shallow := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "git", "clone", "-q", "--depth", "1", "file://"+dir, shallow).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	src, err = git.Resolve(t.Context(), shallow, "")
	must(t, err)
	r := with(second)
	must(t, r.put())
	there, err = store.LoadDir(store.JobDirOf(r.far))
	must(t, err)
	_, err = git.Prepare(t.Context(), workspace.Source{Repo: there.Spec.Workspace.GitDir, Base: second}, t.TempDir())
	must(t, err)
}

// TestImage: an image goes there once, and only whole.
func TestImage(t *testing.T) {
	p := newPair(t)
	file := filepath.Join(t.TempDir(), "x.sif")
	must(t, os.WriteFile(file, bytes.Repeat([]byte("0123456789abcdef"), 100_000), 0o600))
	sum, err := images.Sum(t.Context(), file)
	must(t, err)
	to := replica.ImagePath(p.home, sum)
	f := mirrorFault("image", nil)
	f.CutIn = 1 << 20
	p.host.Set(f)
	if err := p.site.PutImage(t.Context(), file, p.home, to); err == nil {
		t.Error("a cut image is no error")
	}
	if entries, err := os.ReadDir(filepath.Dir(to)); err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
	p.host.Set(mirrorFault("none", nil))
	must(t, p.site.PutImage(t.Context(), file, p.home, to))
	before, err := os.Stat(to)
	must(t, err)
	must(t, p.site.PutImage(t.Context(), file, p.home, to))
	if after, err := os.Stat(to); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was sent twice: %v", err)
	}
	// The file has changed since its content was looked at.
	must(t, os.Remove(to))
	must(t, os.WriteFile(file, bytes.Repeat([]byte("0123456789abcdeX"), 100_000), 0o600))
	if err := p.site.PutImage(t.Context(), file, p.home, to); err == nil || !strings.Contains(err.Error(), "did not arrive whole") {
		t.Errorf("%v", err)
	}
	if err := p.site.PutImage(t.Context(), file, p.home, p.home+"/jobs/x"); err == nil {
		t.Error("that is no place for an image")
	}
}

// TestGone: a record that someone removed there is said to be gone; one that
// has never arrived is not.
func TestGone(t *testing.T) {
	p := newPair(t)
	must(t, p.round())
	_, err := store.SetSubmitted(p.rec.Current().Dir, jobs.Submitted{Version: 1})
	must(t, err)
	p.rec, err = store.LoadDir(p.rec.Dir)
	must(t, err)
	if err := p.round(); jobs.KindOf(err) != jobs.KindNotFound || jobs.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	must(t, os.RemoveAll(p.home))
	if err := p.round(); err == nil || !strings.Contains(err.Error(), "no state directory") {
		t.Errorf("%v", err)
	}
}
