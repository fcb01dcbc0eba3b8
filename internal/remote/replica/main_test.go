package replica_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/remote/replica"
	"berth/internal/sys/ids"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
	"berth/test/fakes/mirrortest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair is a machine here and a cluster there, with one job on both.
type pair struct {
	t    *testing.T
	host *mirrortest.Host
	site *replica.Site
	here *store.Store
	home string // the state directory there
	n    store.New
	rec  *jobs.Record // here
	far  string       // the attempt's directory there
}

const secret = "s3cr3t-canary"

func newPair(t *testing.T, change ...func(*jobs.Spec)) *pair {
	t.Helper()
	p := &pair{t: t, host: mirrortest.New(t)}
	p.site = p.newSite()
	var err error
	p.here, err = store.Open(filepath.Join(t.TempDir(), "here"))
	must(t, err)
	g, err := p.site.Survey(t.Context(), replica.Question{})
	must(t, err)
	p.home = g.Home
	id, err := ids.New()
	must(t, err)
	aid, err := ids.New()
	must(t, err)
	spec := jobs.Spec{
		Version: 1, ID: id, Name: "fix", Slug: "fix", Command: jobs.Command{Shell: "true"}, LoginHome: g.Home, Host: "laptop", Created: time.Now().UTC(), EnvNames: []string{"TOKEN"},
		Place: jobs.Place{
			Scheduler: jobs.SchedulerSlurm, Backend: jobs.BackendLocal, Login: &jobs.SSHSpec{Host: "login"},
		},
	}
	for _, c := range change {
		c(&spec)
	}
	p.n = store.New{Spec: spec, Attempt: jobs.AttemptInfo{Version: 1, ID: aid, Number: 1, Name: "berth-fix-1", Created: time.Now().UTC()}, Task: []byte("# task"), Prompt: bytes.Repeat([]byte("prompt "), 300),
		Script: func(string) (string, error) { return "#!/bin/sh\n", nil }}
	p.rec, err = p.here.Create(p.n)
	must(t, err)
	p.n.Secrets = []string{"TOKEN=" + secret}
	st, err := store.At(g.Home)
	must(t, err)
	p.far = store.AttemptDir(st.JobDir(id), 1)
	return p
}

func (p *pair) newSite() *replica.Site {
	return replica.New(replica.Config{Host: p.host, Git: workspace.New(run.Local{}),
		Scheduler: func(jobs.Starter, string) jobs.Scheduler { return jobstest.NewFake() }})
}

func (p *pair) put() error {
	return p.site.Put(p.t.Context(), p.home, p.n, "#!/bin/sh\necho there\n")
}

// round is one, and the record here after it.
func (p *pair) round() error {
	p.t.Helper()
	err := p.site.Round(p.t.Context(), []*jobs.Record{p.rec})[0]
	rec, lerr := store.LoadDir(p.rec.Dir)
	must(p.t, lerr)
	p.rec = rec
	return err
}

// write is what a runner there does to one of its files.
func (p *pair) write(name, text string) {
	p.t.Helper()
	f, err := os.OpenFile(filepath.Join(p.far, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(p.t, err)
	_, err = f.WriteString(text)
	must(p.t, err)
	must(p.t, f.Close())
}

func (p *pair) claim(at time.Time) {
	p.t.Helper()
	_, err := store.SetClaim(p.far, jobs.Claim{Version: 1, Attempt: p.n.Attempt.ID, Host: "c1", PID: 7, Time: at})
	must(p.t, err)
}

func (p *pair) exit(change ...func(*jobs.ExitRecord)) {
	p.t.Helper()
	x := jobs.ExitRecord{Version: 1, Attempt: p.n.Attempt.ID, State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}, Ended: time.Now().UTC(), Node: "c1"}
	for _, c := range change {
		c(&x)
	}
	_, err := store.SetExit(p.far, x)
	must(p.t, err)
}

// ends is all that a runner writes of a job.
func (p *pair) ends() {
	p.t.Helper()
	p.claim(time.Now())
	for _, name := range []string{store.FileStdout, store.FileStderr, store.FileDoneStdout, store.FileEvents, store.FileRuntime, jobs.SchedulerLog, workspace.DiffFile, workspace.BundleFile, workspace.ManifestFile} {
		p.write(name, strings.Repeat(name+"\n", 40))
	}
	must(p.t, os.MkdirAll(filepath.Join(p.far, "artifacts", "d"), 0o700))
	p.write("artifacts/d/model", "weights")
	p.exit(func(x *jobs.ExitRecord) { x.Artifacts = []string{"d/model"} })
}

// same compares the files of the attempt here and there.
func (p *pair) same() {
	p.t.Helper()
	for _, name := range []string{store.FileStdout, store.FileStderr, store.FileDoneStdout, store.FileEvents, store.FileRuntime, jobs.SchedulerLog, workspace.DiffFile, workspace.BundleFile, workspace.ManifestFile,
		"claim.json", "exit.json", "artifacts/d/model"} {
		want, err := os.ReadFile(filepath.Join(p.far, name))
		must(p.t, err)
		got, err := os.ReadFile(filepath.Join(p.rec.Current().Dir, name))
		if err != nil || string(got) != string(want) {
			p.t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
		}
	}
	entries, err := os.ReadDir(p.rec.Current().Dir)
	must(p.t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			p.t.Errorf("left: %s", e.Name())
		}
	}
}

// repository is one with some commits, and its last one.
func repository(t *testing.T) (dir string, commit func(text string) string) {
	t.Helper()
	dir = t.TempDir()
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b.invalid"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	n := 0
	return dir, func(text string) string {
		n++
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%d", n)), []byte(text), 0o600))
		git("add", "-A")
		git("commit", "-q", "-m", fmt.Sprint(n))
		return git("rev-parse", "HEAD")
	}
}
