package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// files lists what the ledger holds of jobs.
func (f *fixture) files() []string {
	f.t.Helper()
	var all []string
	must(f.t, filepath.WalkDir(filepath.Join(f.Store.Home(), "jobs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	}))
	return all
}

func TestSubmit(t *testing.T) {
	f := newFixture(t)
	work := task(func(t *jobs.Task) {
		t.Prompt = "canary-prompt\nline two"
		t.Source = []byte("+++\n+++\ncanary-prompt\n")
		t.Env = []string{"TOKEN", "MODE=fast"}
	})
	r := f.submit(work, Choice{})
	if got := jobs.StateOf(r); got != jobs.StatePending {
		t.Errorf("it is %s", got)
	}
	if l := f.slurm.Launches(); len(l) != 1 || l[0].Name != r.Current().Info.Name || l[0].Dir != r.Current().Dir || strings.Join(l[0].Argv[:3], " ") != "/bin/berth-node runner --attempt" {
		t.Errorf("launched %+v", l)
	}
	got := f.load(r)
	if got.Current().Submitted == nil || got.Current().Submitted.Handle.NativeID != "1" || got.Spec.Name != work.Name || !got.Spec.Prompt {
		t.Errorf("recorded %+v", got.Current())
	}
	// What passes on from the caller is in one file only, and neither it nor
	// the prompt is in the script or on the command line.
	for _, path := range f.files() {
		b, err := os.ReadFile(path)
		must(t, err)
		name := filepath.Base(path)
		if strings.Contains(string(b), "canary-secret") != (name == "env") {
			t.Errorf("the secret and %s", name)
		}
		if strings.Contains(string(b), "canary-prompt") != (name == "prompt.md" || name == "task.md") {
			t.Errorf("the prompt and %s", name)
		}
		if strings.HasPrefix(name, ".") {
			t.Errorf("left %s", path)
		}
	}
	if secrets, err := store.TakeSecrets(got.Dir, []string{"TOKEN"}, false); err != nil || len(secrets) != 1 || secrets[0] != "TOKEN=canary-secret" {
		t.Errorf("passed on %q, %v", secrets, err)
	}
	if len(got.Spec.Env) != 1 || got.Spec.Env[0] != "MODE=fast" || len(got.Spec.EnvNames) != 1 {
		t.Errorf("env %q, names %q", got.Spec.Env, got.Spec.EnvNames)
	}
	if c := f.slurm.Calls(); c.Submit != 1 || c.Find != 0 {
		t.Errorf("%+v", c)
	}
}

// TestSubmitFails goes through the ways in which nothing is submitted: the
// error is the cause, and no record stays.
func TestSubmitFails(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(f *fixture, s *jobs.Spec)
		code  int
	}{
		"rejected": {func(f *fixture, _ *jobs.Spec) {
			f.slurm.Submits = func(jobs.Launch) error {
				return &jobs.Error{Kind: jobs.KindRejected, Msg: "invalid partition", Hint: "sinfo"}
			}
		}, jobs.CodeUsage},
		"down": {func(f *fixture, _ *jobs.Spec) {
			f.slurm.Submits = func(jobs.Launch) error {
				return &jobs.Error{Kind: jobs.KindInfra, Msg: "sbatch: connection refused", Hint: "scontrol ping"}
			}
		}, jobs.CodeInfra},
		"no program for the nodes": {func(f *fixture, _ *jobs.Spec) {
			f.Node = func() (string, error) { return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "disk full", Hint: "df"} }
		}, jobs.CodeInfra},
		"unknown scheduler": {func(_ *fixture, s *jobs.Spec) { s.Scheduler = "pbs" }, jobs.CodeUsage},
		"unknown backend":   {func(_ *fixture, s *jobs.Spec) { s.Backend = "abacus" }, jobs.CodeUsage},
		"not renderable": {func(f *fixture, _ *jobs.Spec) {
			f.Node = func() (string, error) { return "/bin/berth\nnode", nil }
		}, jobs.CodeUsage},
	} {
		f := newFixture(t)
		s := f.plan(task(), Choice{})
		c.spoil(f, s)
		r, err := f.Submit(t.Context(), s, task())
		if r != nil || jobs.CodeOf(err) != c.code || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v, %v, code %d", name, r, err, jobs.CodeOf(err))
		}
		if left := f.files(); len(left) != 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

func TestSubmitUnclear(t *testing.T) {
	lose := func(f *fixture) { f.slurm.LoseReplies = 1 }
	vanish := func(err error) func(f *fixture) {
		return func(f *fixture) { f.slurm.Submits = func(jobs.Launch) error { return err } }
	}
	lost := &jobs.Error{Kind: jobs.KindUnclear, Msg: "sbatch: timed out"}
	for name, c := range map[string]struct {
		spoil func(f *fixture)
		code  int
		state jobs.State // of the record; "" is that there is none
		slept time.Duration
	}{
		"found at once":           {lose, 0, jobs.StatePending, 0},
		"found after failures":    {func(f *fixture) { lose(f); f.slurm.findFails = 3 }, 0, jobs.StatePending, 7 * time.Second},
		"never found":             {vanish(lost), jobs.CodeAgain, "", 31 * time.Second},
		"never found though late": {func(f *fixture) { vanish(lost)(f); f.slurm.findFails = 4 }, jobs.CodeAgain, "", 47 * time.Second},
		"the scheduler is down":   {func(f *fixture) { vanish(lost)(f); f.slurm.findFails = -1 }, jobs.CodeInfra, jobs.StateSubmitting, 31 * time.Second},
		"down and it has it":      {func(f *fixture) { lose(f); f.slurm.findFails = -1 }, jobs.CodeInfra, jobs.StateSubmitting, 31 * time.Second},
		"an error of no kind":     {vanish(errors.New("eh?")), jobs.CodeAgain, "", 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c.spoil(f)
			s := f.plan(task(), Choice{})
			r, err := f.Submit(t.Context(), s, task())
			if jobs.CodeOf(err) != c.code || err != nil && jobs.HintOf(err) == "" {
				t.Errorf("%v, code %d, hint %q", err, jobs.CodeOf(err), jobs.HintOf(err))
			}
			if n := f.slurm.Calls().Submit; n != 1 {
				t.Errorf("submitted %d times", n)
			}
			var sum time.Duration
			for _, d := range f.slept {
				sum += d
			}
			if sum < c.slept || sum > c.slept+8*time.Second {
				t.Errorf("looked for %v, want about %v", sum, c.slept)
			}
			if c.state == "" {
				if left := f.files(); r != nil || len(left) != 0 {
					t.Errorf("left %v", left)
				}
				return
			}
			if r == nil {
				t.Fatal("no record was returned")
			}
			if got := jobs.StateOf(f.load(r)); got != c.state {
				t.Errorf("the record is %s", got)
			}
			if c.code != 0 && (jobs.KindOf(err) != jobs.KindUnclear || !strings.Contains(jobs.HintOf(err), jobs.Short(s.ID))) {
				t.Errorf("kind %d, hint %q", jobs.KindOf(err), jobs.HintOf(err))
			}
		})
	}
}

// TestSubmitInterrupted: who gives up waiting leaves a record that the next
// verb finds out about.
func TestSubmitInterrupted(t *testing.T) {
	f := newFixture(t)
	f.slurm.LoseReplies, f.slurm.findFails = 1, 1
	ctx, cancel := context.WithCancel(t.Context())
	f.slurm.onFind = cancel
	r, err := f.Submit(ctx, f.plan(task(), Choice{}), task())
	if r == nil || jobs.KindOf(err) != jobs.KindUnclear {
		t.Fatalf("%v, %v", r, err)
	}
	f.pass(time.Minute)
	if v := f.see(r); v.State != jobs.StatePending || v.Current().Submitted == nil {
		t.Errorf("it is %s", v.State)
	}
}

// TestSubmittedUnrecorded: the scheduler has the job, and writing that down
// fails. Nothing is submitted again; the name leads to it.
func TestSubmittedUnrecorded(t *testing.T) {
	f := newFixture(t)
	s := f.plan(task(), Choice{})
	var blocker string
	f.slurm.Submits = func(l jobs.Launch) error { // a directory in the file's place
		blocker = filepath.Join(l.Dir, "submitted.json")
		return os.Mkdir(blocker, 0o700)
	}
	r, err := f.Submit(t.Context(), s, task())
	if r == nil || jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(jobs.HintOf(err), "was submitted") {
		t.Fatalf("%v, %v", r, err)
	}
	must(t, os.Remove(blocker))
	f.pass(time.Minute)
	if v := f.see(r); v.State != jobs.StatePending || f.slurm.Calls().Submit != 1 {
		t.Errorf("it is %s", v.State)
	}
}

func TestRender(t *testing.T) {
	f := newFixture(t)
	s, err := f.Plan(t.Context(), task(func(t *jobs.Task) {
		t.Prompt = "canary-prompt"
		t.Place = jobs.Place{Image: "/nowhere.sif", Env: []string{"TOKEN", "ABSENT"}}
	}), Choice{}, true)
	must(t, err)
	script, err := f.Render(t.Context(), s)
	must(t, err)
	if !strings.Contains(script, "/bin/berth-node runner --attempt "+f.Store.JobDir(s.ID)) || strings.Contains(script, "canary") {
		t.Error(script)
	}
	again, err := f.Render(t.Context(), s)
	if err != nil || again != script {
		t.Errorf("rendered again it is\n%s", again)
	}
	if left := f.files(); len(left) != 0 || f.slurm.Calls().Submit != 0 {
		t.Errorf("left %v", left)
	}
	s.Scheduler = "pbs"
	if _, err := f.Render(t.Context(), s); jobs.CodeOf(err) != jobs.CodeUsage {
		t.Error(err)
	}
}
