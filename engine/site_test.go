package engine

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"berth/internal/remote/replica"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
	"berth/test/fakes/mirrortest"
)

// cluster is one that is reached through a login host.
type cluster struct {
	*fixture
	host *mirrortest.Host
	far  *scheduler // there
	// onSubmit is called when sbatch would begin, and afterSubmit when it has
	// ended and its answer is on its way.
	onSubmit, afterSubmit func()
}

func (c *cluster) Submit(ctx context.Context, l jobs.Launch, script string) (jobs.Handle, error) {
	if _, err := os.Stat(script); err != nil {
		c.t.Errorf("sbatch does not find its script: %v", err)
	}
	if c.onSubmit != nil {
		c.onSubmit()
	}
	h, err := c.FakeScheduler().Submit(ctx, l, script)
	if c.afterSubmit != nil {
		c.afterSubmit()
	}
	return h, err
}

// FakeScheduler is the scheduler there without what this type puts around it.
func (c *cluster) FakeScheduler() *jobstest.FakeScheduler { return c.far.FakeScheduler }

// there is the scheduler as the engine sees it: nothing of it works while the
// host is down.
type there struct {
	*scheduler
	c *cluster
}

func (t *there) Submit(ctx context.Context, l jobs.Launch, script string) (jobs.Handle, error) {
	return t.c.Submit(ctx, l, script)
}

var login = &jobs.SSHSpec{Host: "login", User: "ada"}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{fixture: newFixture(t), host: mirrortest.New(t)}
	c.clock = time.Now().UTC() // times of files there are the real clock's
	c.far = &scheduler{FakeScheduler: jobstest.NewFake(), name: jobs.SchedulerSlurm}
	far := replica.New(replica.Config{Host: c.host, Git: workspace.New(run.Local{}),
		Scheduler: func(jobs.Starter, string) jobs.Scheduler { return &there{c.far, c} }})
	c.sites = func(s jobs.SSHSpec) (site, error) {
		if s.Host != "login" {
			t.Errorf("the host %q is asked for", s.Host)
		}
		return far, nil
	}
	c.Node = func() (string, error) {
		t.Error("a program for nodes was put on this machine")
		return "", nil
	}
	return c
}

func (c *cluster) away(t jobs.Task) jobs.Task { return at(t, jobs.Place{Login: login}) }

// adir is the current attempt's directory there.
func (c *cluster) adir(r *jobs.Record) string {
	c.t.Helper()
	st, err := store.At(r.Spec.LoginHome)
	must(c.t, err)
	return store.AttemptDir(st.JobDir(r.Spec.ID), r.Current().N)
}

// starts is what a runner there does first.
func (c *cluster) starts(r *jobs.Record) {
	c.t.Helper()
	_, err := store.SetClaim(c.adir(r), jobs.Claim{Version: 1, Attempt: r.Current().Info.ID, Host: "c1", PID: 7, Time: time.Now().Add(9 * time.Hour)})
	must(c.t, err)
}

func (c *cluster) ends(r *jobs.Record) {
	c.t.Helper()
	must(c.t, os.WriteFile(filepath.Join(c.adir(r), "stdout"), []byte("out\n"), 0o600))
	_, err := store.SetExit(c.adir(r), jobs.ExitRecord{Version: 1, Attempt: r.Current().Info.ID, State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}})
	must(c.t, err)
}

func secrets(t *jobs.Task) { t.Env = []string{"TOKEN"} }

// TestFarJob: one job from its plan to its end, and what goes over the link.
func TestFarJob(t *testing.T) {
	c := newCluster(t)
	r := c.submit(c.away(task(secrets)), Choice{})
	if got := c.host.Calls(); got != "survey put" {
		t.Errorf("a submission asks: %s", got)
	}
	if n := c.slurm.Calls(); n.Submit+n.Status+n.Find > 0 {
		t.Errorf("the scheduler here was asked: %+v", n)
	}
	script, err := os.ReadFile(store.ScriptPath(c.adir(r)))
	must(t, err)
	here, err := os.ReadFile(store.ScriptPath(r.Current().Dir))
	must(t, err)
	if string(script) != string(here) || strings.Contains(string(script), c.Store.Home()) || !strings.Contains(string(script), c.adir(r)) {
		t.Errorf("the script:\n%s", script)
	}
	there, err := store.LoadDir(store.JobDirOf(c.adir(r)))
	must(t, err)
	if there.Spec.Login != nil || jobs.StateOf(there) != jobs.StateSubmitting {
		t.Errorf("%+v", there.Spec)
	}
	c.far.Start(r.Current().Info.Name)
	if v := c.see(r); v.State != jobs.StatePending {
		t.Error(v.State)
	}
	if got := c.host.Calls(); got != "round" || c.far.Calls().Status != 1 {
		t.Errorf("a job that waits: %s, %+v", got, c.far.Calls())
	}
	c.starts(r)
	if v := c.see(r); v.State != jobs.StateRunning || v.AskError != nil {
		t.Errorf("%s, %v", v.State, v.AskError)
	}
	if got := c.host.Calls(); got != "round" || c.far.Calls().Status != 1 {
		t.Errorf("a job that runs: %s, %+v", got, c.far.Calls())
	}
	c.ends(r)
	if v := c.see(r); v.State != jobs.StateCompleted {
		t.Error(v.State)
	}
	c.see(r)
	if got := c.host.Calls(); got != "round" {
		t.Errorf("a job that has ended: %s", got)
	}
	must(t, c.Remove(t.Context(), c.load(r), false))
	if _, err := os.Stat(c.adir(r)); err == nil {
		t.Error("its record there is left")
	}
}

// killed runs what a process does until it is killed.
func killed(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

// TestFarKilled: the client is killed in mid-submission; a later one converges.
func TestFarKilled(t *testing.T) {
	for name, set := range map[string]func(*cluster){
		"before put":    func(c *cluster) { c.host.Set(mirrortest.Fault{Verb: "put", Hook: runtime.Goexit}) },
		"before sbatch": func(c *cluster) { c.onSubmit = runtime.Goexit },
		"after sbatch":  func(c *cluster) { c.afterSubmit = runtime.Goexit },
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c := newCluster(t)
			spec := c.plan(c.away(task(secrets)), Choice{})
			set(c)
			killed(func() { _, _ = c.Engine.Submit(t.Context(), spec, task(secrets)) })
			c.onSubmit, c.afterSubmit = nil, nil
			c.host.Set(mirrortest.Fault{})
			rec, err := c.Store.Load(spec.ID)
			must(t, err)
			if s := jobs.StateOf(rec); s != jobs.StateSubmitting {
				t.Fatal(s)
			}
			c.pass(time.Minute)
			v := c.see(rec)
			if name == "after sbatch" {
				if v.State != jobs.StatePending || v.Current().Submitted == nil {
					t.Fatalf("%s", v.State)
				}
				c.starts(rec)
				c.ends(rec)
				if v := c.see(rec); v.State != jobs.StateCompleted {
					t.Error(v.State)
				}
				return
			}
			if v.State != jobs.StateSubmitting || !strings.Contains(v.Note, "not confirmed") {
				t.Fatalf("%s, %q", v.State, v.Note)
			}
			c.pass(submitting)
			if v := c.see(rec); v.State != jobs.StateError || !strings.Contains(v.Current().Verdict.Reason, "never submitted") {
				t.Errorf("%s, %+v", v.State, v.Current().Verdict)
			}
			// The runner of a script that turns up after all finds that there.
			if name == "before put" {
				return
			}
			if a, err := store.LoadAttempt(c.adir(rec)); err != nil || a.Verdict == nil {
				t.Errorf("%+v, %v", a, err)
			}
			if _, err := os.Stat(filepath.Join(c.adir(rec), "env")); err == nil {
				t.Error("the secrets are left")
			}
			if n := c.far.Calls().Submit; n != 0 {
				t.Errorf("submitted %d times", n)
			}
		})
	}
}

// TestFarUnclear: the answer to sbatch is lost; the job is found by its name.
func TestFarUnclear(t *testing.T) {
	c := newCluster(t)
	c.far.LoseReplies, c.far.findFails = 1, 2
	r := c.submit(c.away(task()), Choice{})
	if r.Current().Submitted == nil || c.far.Calls().Submit != 1 {
		t.Errorf("%+v", c.far.Calls())
	}
}

// TestFarRefused: what the scheduler does not take leaves nothing, there and
// here; when the host cannot be reached, what is left is concluded later.
func TestFarRefused(t *testing.T) {
	gone := func(c *cluster, s *jobs.Spec) {
		t.Helper()
		if _, err := c.Store.Load(s.ID); jobs.KindOf(err) != jobs.KindNotFound {
			t.Errorf("a record here: %v", err)
		}
		if entries, _ := filepath.Glob(filepath.Join(s.LoginHome, "jobs", "*", "*")); len(entries) > 0 {
			t.Errorf("a record there: %s", entries)
		}
	}
	c := newCluster(t)
	c.far.Submits = refuses
	s := c.plan(c.away(task(secrets)), Choice{})
	_, err := c.Engine.Submit(t.Context(), s, task(secrets))
	if jobs.KindOf(err) != jobs.KindRejected {
		t.Errorf("%v", err)
	}
	gone(c, s)

	c = newCluster(t)
	s = c.plan(c.away(task(secrets)), Choice{})
	c.host.Set(mirrortest.Fault{Verb: "put", Down: true})
	if _, err = c.Engine.Submit(t.Context(), s, task(secrets)); jobs.KindOf(err) != jobs.KindInfra || jobs.HintOf(err) != "ssh login" {
		t.Errorf("%v", err)
	}
	gone(c, s)
	c.host.Set(mirrortest.Fault{Verb: "put", Lost: true})
	if _, err = c.Engine.Submit(t.Context(), s, task(secrets)); err == nil {
		t.Error("no error")
	}
	gone(c, s)

	// It arrived, the answer is lost, and the host is away from then on.
	c.far.Submits = refuses
	c.host.Set(mirrortest.Fault{})
	s = c.plan(c.away(task(secrets)), Choice{})
	c.onSubmit = func() { c.host.Set(mirrortest.Fault{Down: true}) }
	if _, err = c.Engine.Submit(t.Context(), s, task(secrets)); jobs.KindOf(err) != jobs.KindRejected || !strings.Contains(jobs.HintOf(err), "berth status ") {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
	rec, err := c.Store.Load(s.ID)
	must(t, err)
	c.pass(submitting + time.Minute)
	if v := c.see(rec); v.State != jobs.StateSubmitting || v.AskError == nil {
		t.Errorf("%s, %v", v.State, v.AskError)
	}
	c.host.Set(mirrortest.Fault{})
	if v := c.see(rec); v.State != jobs.StateError {
		t.Errorf("%s", v.State)
	}
	if _, err := os.Stat(filepath.Join(c.adir(rec), "env")); err == nil {
		t.Error("the secrets are left")
	}
}

// TestFarAway: a host that does not answer changes nothing.
func TestFarAway(t *testing.T) {
	c := newCluster(t)
	r := c.submit(c.away(task()), Choice{})
	c.starts(r)
	c.see(r)
	local := c.submitHere(task())
	c.host.Set(mirrortest.Fault{Down: true})
	c.pass(24 * time.Hour)
	views := c.Reconcile(t.Context(), []*jobs.Record{c.load(r), local})
	if v := views[0]; v.State != jobs.StateRunning || v.AskError == nil || !v.AsOf.Before(c.now().Add(-23*time.Hour)) {
		t.Errorf("%s as of %v, %v", v.State, v.AsOf, v.AskError)
	}
	if views[1].AskError != nil {
		t.Errorf("the job here: %v", views[1].AskError)
	}
	if n := c.far.Calls().Status; n != 0 {
		t.Errorf("the scheduler was asked %d times", n)
	}
	// The wish for an end is recorded, and arrives with the next word.
	if err := c.Cancel(t.Context(), views[:1], "ada"); err == nil {
		t.Error("no error")
	}
	c.host.Set(mirrortest.Fault{})
	if v := c.see(r); v.State != jobs.StateRunning || v.AskError != nil {
		t.Errorf("%s, %v", v.State, v.AskError)
	}
	if !store.Cancelled(store.JobDirOf(c.adir(r))) {
		t.Error("the wish did not arrive")
	}
	c.ends(r)
	c.see(r)
	c.host.Set(mirrortest.Fault{Verb: "remove", Down: true})
	if err := c.Remove(t.Context(), c.load(r), false); err == nil || !strings.Contains(jobs.HintOf(err), "--force") {
		t.Errorf("%v", err)
	}
	c.load(r)
	if err := c.Remove(t.Context(), c.load(r), true); err == nil {
		t.Error("it is not said that the record there is left")
	}
	if _, err := c.Store.Load(r.Spec.ID); jobs.KindOf(err) != jobs.KindNotFound {
		t.Errorf("%v", err)
	}
}

// submitHere is a job of this machine's scheduler.
func (c *cluster) submitHere(w jobs.Task) *jobs.Record {
	c.t.Helper()
	c.Node = func() (string, error) { return "/bin/berth-node", nil }
	return c.submit(w, Choice{})
}

// TestFarCancel: the wish is there before the scheduler hears of it, whatever
// the number of jobs in one execution.
func TestFarCancel(t *testing.T) {
	c := newCluster(t)
	a, b := c.submit(c.away(task()), Choice{}), c.submit(c.away(task()), Choice{})
	views := c.Reconcile(t.Context(), []*jobs.Record{c.load(a), c.load(b)})
	c.host.Calls()
	must(t, c.Cancel(t.Context(), views, "ada"))
	if got := c.host.Calls(); got != "round" || c.far.Calls().Cancel != 1 {
		t.Errorf("%s, %+v", got, c.far.Calls())
	}
	for _, r := range []*jobs.Record{a, b} {
		if !store.Cancelled(store.JobDirOf(c.adir(r))) {
			t.Error("the wish did not arrive")
		}
	}
}

// TestFarWait goes on when the link comes back, and says both.
func TestFarWait(t *testing.T) {
	c := newCluster(t)
	r := c.submit(c.away(task()), Choice{})
	n := 0
	c.onSleep = func() {
		switch n++; n {
		case 2:
			c.starts(r)
		case 4:
			c.host.Set(mirrortest.Fault{Down: true})
		case 40:
			c.ends(r)
			c.host.Set(mirrortest.Fault{})
		}
	}
	var seen []string
	v, err := c.Wait(t.Context(), r.Spec.ID, func(v View) {
		s := string(v.State)
		if v.AskError != nil {
			s += "?"
		}
		seen = append(seen, s)
	})
	must(t, err)
	if got := strings.Join(seen, " "); v.State != jobs.StateCompleted || got != "pending running running? completed" {
		t.Errorf("%s: %s", v.State, got)
	}
	if b, err := os.ReadFile(filepath.Join(r.Current().Dir, "stdout")); err != nil || string(b) != "out\n" {
		t.Errorf("%q, %v", b, err)
	}
	must(t, os.RemoveAll(store.JobDirOf(c.adir(r))))
	// One whose record someone removed there is not waited for.
	r = c.submit(c.away(task()), Choice{})
	must(t, os.RemoveAll(store.JobDirOf(c.adir(r))))
	if _, err := c.Wait(t.Context(), r.Spec.ID, nil); jobs.KindOf(err) != jobs.KindNotFound {
		t.Errorf("%v", err)
	}
}

// TestFarPlan: what lives on the cluster is not looked for here.
func TestFarPlan(t *testing.T) {
	c := newCluster(t)
	contained := func(image, reference string) jobs.Task {
		return task(func(w *jobs.Task) {
			w.Backend, w.Image, w.Reference, w.Overlay.Name = "", image, reference, "mine"
		})
	}
	far := filepath.Join(c.host.Home, "there.sif")
	sif, err := os.ReadFile(c.sif)
	must(t, err)
	must(t, os.WriteFile(far, sif, 0o600))
	// The overlay of the same name here is another one.
	overlay := func(home, driver string) {
		dir := filepath.Join(home, "overlays", "mine")
		must(t, os.MkdirAll(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "mark.json"), []byte(`{"version":1,"name":"mine","driver":"`+driver+`"}`), 0o600))
	}
	overlay(c.Store.Home(), jobs.DriverFuse)
	must(t, os.MkdirAll(filepath.Join(c.host.Home, ".local/state/berth"), 0o700))
	overlay(filepath.Join(c.host.Home, ".local/state/berth"), jobs.DriverExt3)
	s := c.plan(c.away(contained(far, far)), Choice{})
	if s.Image != far || s.ImageFrom != "" || s.Overlay.Driver != jobs.DriverExt3 || s.Scheduler != jobs.SchedulerSlurm {
		t.Errorf("%s, %s, %+v", s.Image, s.ImageFrom, s.Overlay)
	}
	if got := c.host.Calls(); got != "survey" {
		t.Errorf("a plan asks: %s", got)
	}
	for _, reference := range []string{c.sif, "local:" + c.sif} {
		w := contained(c.sif, reference)
		s = c.plan(c.away(w), Choice{})
		// It is on this machine's disk, which the host here sees as well: only
		// what is named so, or is missing there, is copied.
		if copied := s.ImageFrom != ""; copied != strings.HasPrefix(reference, "local:") {
			t.Errorf("%s: %+v", reference, s)
		}
	}
	if !strings.HasPrefix(s.Image, s.LoginHome+"/images/sha256/") {
		t.Error(s.Image)
	}
	r, err := c.Engine.Submit(t.Context(), s, contained(c.sif, "local:"+c.sif))
	must(t, err)
	if b, err := os.ReadFile(r.Spec.Image); err != nil || string(b) != string(sif) {
		t.Errorf("the copy: %d bytes, %v", len(b), err)
	}
	for _, image := range []string{"/nowhere.sif", "/etc/passwd"} {
		if _, err := c.Plan(t.Context(), c.away(contained(image, image)), Choice{}, false); err == nil || !strings.Contains(err.Error(), "on login") {
			t.Errorf("%s: %v", image, err)
		}
	}
	if _, err := c.Plan(t.Context(), at(task(), jobs.Place{Login: login, Scheduler: jobs.SchedulerLocal}), Choice{}, false); jobs.KindOf(err) != jobs.KindUsage {
		t.Errorf("%v", err)
	}
	c.sites = nil
	if _, err := c.Plan(t.Context(), c.away(task()), Choice{}, false); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("%v", err)
	}
}

func refuses(jobs.Launch) error {
	return &jobs.Error{Kind: jobs.KindRejected, Msg: "invalid partition"}
}
