package engine

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/backends/local"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
	"berth/test/fakes/mirrortest"
)

// farEngine is what `berth-node follow` is on the cluster.
func (c *cluster) farEngine(home string) *Engine {
	c.t.Helper()
	st, err := store.Open(home)
	must(c.t, err)
	node := func() (string, error) { return filepath.Join(home, "bin", "berth-node"), nil }
	return &Engine{Store: st, Schedulers: []jobs.Scheduler{c.far}, Backends: []jobs.Backend{local.Backend{}}, git: workspace.New(run.Local{}),
		Node: node, Getenv: os.LookupEnv, Now: c.now, Sleep: c.Sleep}
}

// follows has the cluster act on jobs when it is asked to.
func (c *cluster) follows() {
	c.host.Follow = func(home string, ids []string) error {
		e := c.farEngine(home)
		var recs []*jobs.Record
		for _, id := range ids {
			r, err := e.Store.Load(id)
			if err != nil {
				return err
			}
			recs = append(recs, r)
		}
		for _, v := range e.Reconcile(c.t.Context(), recs) {
			e.Guard(c.t.Context(), v.Record)
			if v.AskError != nil || v.Unfollowed != nil {
				return &jobs.Error{Kind: jobs.KindInfra, Msg: "it could not be followed", Hint: "try again"}
			}
		}
		return nil
	}
}

func newFollowed(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.follows()
	return c
}

// there is the record on the cluster.
func (c *cluster) there(r *jobs.Record) *jobs.Record {
	c.t.Helper()
	rec, err := store.LoadDir(store.JobDirOf(c.adir(r)))
	must(c.t, err)
	rec.Spec.LoginHome = r.Spec.LoginHome // for those who look for it again
	return rec
}

// endsAs is the last word of a runner there; decide is that it decides itself.
func (c *cluster) endsAs(r *jobs.Record, x jobs.ExitRecord, decide bool) {
	c.t.Helper()
	rec := c.there(r)
	c.starts(rec)
	a := rec.Current()
	must(c.t, os.WriteFile(filepath.Join(a.Dir, "stdout"), []byte("attempt "+a.Info.ID+"\n"), 0o600))
	x.Version, x.Attempt, x.Ended = 1, a.Info.ID, c.now()
	if decide {
		a.Exit = &x
		d := jobs.Next(rec, nil, c.now()).Decision
		d.By = "the runner"
		_, err := store.SetDecision(a.Dir, d)
		must(c.t, err)
	}
	_, err := store.SetExit(a.Dir, x)
	must(c.t, err)
}

// begun is how many attempts its scheduler was given.
func (c *cluster) begun() int { return len(attemptsOf(c.far.Launches())) }

// secretsLeft tells whether the values are kept on the cluster.
func (c *cluster) secretsLeft(r *jobs.Record) bool {
	_, err := os.Stat(filepath.Join(store.AttemptDir(store.JobDirOf(c.adir(r)), 1), "env"))
	return err == nil
}

// TestThereRetry: the runners there decide and go on with no one here, and what
// they did comes here, attempt by attempt.
func TestThereRetry(t *testing.T) {
	c := newFollowed(t)
	r := c.submit(c.away(task(again, gib, secrets)), Choice{})
	script, err := os.ReadFile(store.ScriptPath(c.adir(r)))
	must(t, err)
	if !strings.Contains(string(script), " --follow "+r.Spec.LoginHome+"/bin/berth") {
		t.Errorf("its runner follows nothing there:\n%s", script)
	}
	if s := c.there(r).Spec; s.Retry == nil || s.Login != nil {
		t.Errorf("%+v", s)
	}
	// Someone looks after it there, too.
	reaper := r.Current().Reaper
	if l := c.far.Launches(); reaper == nil || len(l) != 2 || l[1].Name != reaper.Handle.Name || l[1].Argv[0] != r.Spec.LoginHome+"/bin/berth-node" {
		t.Errorf("%+v, %+v", reaper, l)
	}
	for n := range 2 { // two attempts, of which no one here sees anything
		c.endsAs(c.there(r), oom, true)
		if !c.secretsLeft(r) {
			t.Error("the secrets are gone before the last attempt")
		}
		must(t, c.host.Follow(r.Spec.LoginHome, []string{r.Spec.ID}))
		if got := len(c.there(r).Attempts); got != n+2 {
			t.Fatalf("%d attempts", got)
		}
	}
	c.host.Calls()
	v := c.see(r)
	if v.State != jobs.StatePending || len(v.Attempts) != 3 || v.Current().Submitted == nil {
		t.Fatalf("%s: %d attempts", v.State, len(v.Attempts))
	}
	if got := c.host.Calls(); got != "round round round" {
		t.Errorf("executions: %s", got)
	}
	for i, a := range v.Attempts[:2] {
		if a.Decision == nil || a.Decision.By != "the runner" || a.Exit == nil || a.Exit.State != jobs.StateOutOfMemory {
			t.Errorf("attempt %d: %+v", i+1, a)
		}
		if b, err := os.ReadFile(filepath.Join(a.Dir, "stdout")); err != nil || string(b) != "attempt "+a.Info.ID+"\n" {
			t.Errorf("%q, %v", b, err)
		}
	}
	if m := v.Current().Info.Change.Memory; m != 2304*jobs.MiB {
		t.Errorf("the third asks for %v", m)
	}
	if l := attemptsOf(c.far.Launches()); len(l) != 3 || l[2].Resources.Memory != 2304*jobs.MiB || !strings.HasPrefix(l[2].Dir, r.Spec.LoginHome) {
		t.Errorf("%+v", l)
	}
	c.endsAs(v.Record, jobs.ExitRecord{State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}}, true)
	if v = c.see(r); v.State != jobs.StateCompleted || v.Current().Decision == nil || jobs.CodeOfRecord(v.Record) != 0 {
		t.Errorf("%s: %+v", v.State, v.Current())
	}
	must(t, c.Remove(t.Context(), c.load(r), false))
	if _, err := os.Stat(c.adir(r)); err == nil {
		t.Error("its record there is left")
	}
}

// TestThereDecides: a client that looks has the cluster decide, whatever ended
// the attempt, and writes no word of its own.
func TestThereDecides(t *testing.T) {
	for name, end := range map[string]func(*cluster, *jobs.Record) jobs.Class{
		"by its record": func(c *cluster, r *jobs.Record) jobs.Class {
			c.endsAs(r, oom, false)
			return jobs.ClassMemory
		},
		"by the scheduler's word": func(c *cluster, r *jobs.Record) jobs.Class {
			c.endsAs(r, jobs.ExitRecord{State: jobs.StateCancelled, Class: jobs.ClassEnded}, false)
			c.far.Set(r.Current().Info.Name, jobs.Status{State: jobs.StateError, NativeState: "PREEMPTED"})
			return jobs.ClassPreempted
		},
		"without a record": func(c *cluster, r *jobs.Record) jobs.Class {
			c.far.Start(r.Current().Info.Name)
			c.starts(r)
			past := time.Now().Add(-time.Hour)
			must(c.t, os.Chtimes(filepath.Join(c.adir(r), "claim.json"), past, past))
			must(c.t, store.Beat(c.adir(r), 1, past))
			must(c.t, os.Chtimes(filepath.Join(c.adir(r), "beat"), past, past))
			c.far.Set(r.Current().Info.Name, jobs.Status{State: jobs.StateError, NativeState: "NODE_FAIL"})
			return jobs.ClassNode
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c := newFollowed(t)
			r := c.submit(c.away(task(again, gib, secrets)), Choice{})
			class := end(c, r)
			v := c.see(r)
			if v.State != jobs.StatePending || len(v.Attempts) != 2 || v.AskError != nil {
				t.Fatalf("%s: %d attempts, %v", v.State, len(v.Attempts), v.AskError)
			}
			far := c.there(r)
			if d := v.Attempts[0].Decision; d == nil || d.Class != class || far.Attempts[0].Decision.By != d.By || !far.Attempts[0].Decision.Time.Equal(d.Time) {
				t.Errorf("%+v", d)
			}
			if far.Attempts[1].Info.ID != v.Attempts[1].Info.ID || c.begun() != 2 {
				t.Errorf("%+v", c.far.Calls())
			}
		})
	}
}

// TestThereRace: clients here and there look at once, and one attempt follows.
func TestThereRace(t *testing.T) {
	c := newFollowed(t)
	r := c.submit(c.away(task(again, gib)), Choice{})
	c.endsAs(r, oom, false)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if i%2 == 0 {
				_ = c.host.Follow(r.Spec.LoginHome, []string{r.Spec.ID})
				return
			}
			rec, err := c.Store.Load(r.Spec.ID)
			if err != nil {
				t.Error(err)
				return
			}
			c.Reconcile(t.Context(), []*jobs.Record{rec})
		})
	}
	wg.Wait()
	v := c.see(r)
	if far := c.there(r); len(v.Attempts) != 2 || len(far.Attempts) != 2 || c.begun() != 2 || v.Current().Info.ID != far.Current().Info.ID {
		t.Fatalf("%d attempts here, %d there, %+v", len(v.Attempts), len(far.Attempts), c.far.Calls())
	}
}

// TestThereAway: a link that breaks while the cluster acts changes nothing that
// is known, and the next look goes on.
func TestThereAway(t *testing.T) {
	for _, cut := range []mirrortest.Fault{{Down: true}, {CutIn: -1}, {CutIn: 100}, {CutOut: -1}, {CutOut: 300}, {CutOut: 2000}, {Lost: true}} {
		c := newFollowed(t)
		r := c.submit(c.away(task(again, gib)), Choice{})
		c.endsAs(r, oom, false)
		cut.Verb = "round"
		c.host.Set(cut)
		if v := c.see(r); v.State.Final() {
			t.Errorf("%+v: %s, %v", cut, v.State, v.AskError)
		}
		c.host.Set(mirrortest.Fault{})
		if v := c.see(r); v.State != jobs.StatePending || len(v.Attempts) != 2 || c.begun() != 2 || v.AskError != nil {
			t.Errorf("%+v: %s, %d attempts, %+v, %v", cut, v.State, len(v.Attempts), c.far.Calls(), v.AskError)
		}
	}
	// The cluster's own scheduler does not take the next attempt now.
	c := newFollowed(t)
	r := c.submit(c.away(task(again, gib)), Choice{})
	c.endsAs(r, oom, false)
	c.far.Fault(func(s *jobstest.FakeScheduler) {
		s.Submits = func(jobs.Launch) error { return &jobs.Error{Kind: jobs.KindAgain, Msg: "it is busy"} }
	})
	if v := c.see(r); v.State != jobs.StatePending || v.AskError == nil || v.Attempts[0].Decision == nil {
		t.Errorf("%s, %v", v.State, v.AskError)
	}
	c.far.Fault(func(s *jobstest.FakeScheduler) { s.Submits = nil })
	if v := c.see(r); len(v.Attempts) != 2 || v.AskError != nil {
		t.Errorf("%d attempts, %v", len(v.Attempts), v.AskError)
	}
}

// TestThereCancel: the wish is there before anything else is done, so nothing
// follows; also between two attempts.
func TestThereCancel(t *testing.T) {
	// The runner has decided, and no one has begun the next attempt.
	c := newFollowed(t)
	r := c.submit(c.away(task(again, gib, secrets)), Choice{})
	c.endsAs(r, oom, true)
	c.host.Follow = nil
	views := c.Reconcile(t.Context(), []*jobs.Record{c.load(r)})
	if s := views[0].State; s != jobs.StatePending {
		t.Fatal(s)
	}
	must(t, c.Cancel(t.Context(), views, "ada"))
	c.follows()
	v := c.see(r)
	if v.State != jobs.StateCancelled || len(v.Attempts) != 2 || c.begun() != 1 || c.secretsLeft(r) {
		t.Errorf("%s, %d attempts, %+v", v.State, len(v.Attempts), c.far.Calls())
	}
	// Another attempt than is known here waits in the queue there.
	c = newFollowed(t)
	r = c.submit(c.away(task(again, gib)), Choice{})
	views = c.Reconcile(t.Context(), []*jobs.Record{c.load(r)})
	c.endsAs(r, oom, true)
	must(t, c.host.Follow(r.Spec.LoginHome, []string{r.Spec.ID}))
	must(t, c.Cancel(t.Context(), views, "ada"))
	if v := c.see(r); v.State != jobs.StateCancelled || len(v.Attempts) != 2 {
		t.Errorf("%s, %d attempts", v.State, len(v.Attempts))
	}
	// The host does not answer: the wish goes there with the next look.
	c = newFollowed(t)
	r = c.submit(c.away(task(again, gib)), Choice{})
	views = c.Reconcile(t.Context(), []*jobs.Record{c.load(r)})
	c.host.Set(mirrortest.Fault{Down: true})
	if err := c.Cancel(t.Context(), views, "ada"); err == nil {
		t.Error("no error")
	}
	c.endsAs(r, oom, true)
	c.host.Set(mirrortest.Fault{})
	if v := c.see(r); v.State != jobs.StateCancelled || c.begun() != 1 {
		t.Errorf("%s, %+v", v.State, c.far.Calls())
	}
}

// TestThereKilled: the client is killed at every step of a submission; looks
// here and there converge to one job, or to none and a word about it.
func TestThereKilled(t *testing.T) {
	for name, set := range map[string]func(*cluster){
		"before put":       func(c *cluster) { c.host.Set(mirrortest.Fault{Verb: "put", Hook: runtime.Goexit}) },
		"after it was put": func(c *cluster) { c.onSubmit = runtime.Goexit },
		"after sbatch":     func(c *cluster) { c.afterSubmit = runtime.Goexit },
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c := newFollowed(t)
			spec := c.plan(c.away(task(again, gib, secrets)), Choice{})
			set(c)
			killed(func() { _, _ = c.Engine.Submit(t.Context(), spec, task(again, gib, secrets)) })
			c.onSubmit, c.afterSubmit = nil, nil
			c.host.Set(mirrortest.Fault{})
			rec, err := c.Store.Load(spec.ID)
			must(t, err)
			c.pass(time.Minute)
			v := c.see(rec)
			switch name {
			case "after sbatch":
				if v.State != jobs.StatePending || v.Current().Submitted == nil || c.begun() != 1 {
					t.Fatalf("%s, %+v", v.State, c.far.Calls())
				}
				c.endsAs(rec, oom, true)
				if v := c.see(rec); len(v.Attempts) != 2 {
					t.Errorf("%d attempts", len(v.Attempts))
				}
				return
			case "after it was put":
				if v.State != jobs.StateSubmitting || !strings.Contains(v.Note, "not confirmed") {
					t.Fatalf("%s, %q", v.State, v.Note)
				}
				// It is on record, so it runs: once.
				c.pass(submitting)
				if v := c.see(rec); v.State != jobs.StatePending || len(v.Attempts) != 2 || c.begun() != 1 {
					t.Errorf("%s, %d attempts, %+v", v.State, len(v.Attempts), c.far.Calls())
				}
			case "before put":
				if v.State != jobs.StateSubmitting || !strings.Contains(v.Note, "not confirmed") {
					t.Fatalf("%s, %q", v.State, v.Note)
				}
				c.pass(submitting)
				v = c.see(rec)
				if d := v.Current().Decision; v.State != jobs.StateError || len(v.Attempts) != 1 || d == nil || d.Verb != jobs.VerbAccept || c.begun() != 0 {
					t.Errorf("%s, %+v", v.State, v.Current())
				}
			}
		})
	}
}

// TestThereRefused: a job of which it was said that it was not submitted is
// tried by no one, whenever its host answers again.
func TestThereRefused(t *testing.T) {
	c := newFollowed(t)
	c.far.Submits = refuses
	s := c.plan(c.away(task(again, gib, secrets)), Choice{})
	c.onSubmit = func() { c.host.Set(mirrortest.Fault{Down: true}) }
	if _, err := c.Engine.Submit(t.Context(), s, task(again, gib, secrets)); jobs.KindOf(err) != jobs.KindRejected {
		t.Fatal(err)
	}
	c.onSubmit, c.far.Submits = nil, nil
	c.host.Set(mirrortest.Fault{})
	rec, err := c.Store.Load(s.ID)
	must(t, err)
	c.pass(time.Hour)
	v := c.see(rec)
	if far := c.there(rec); v.State != jobs.StateError || len(far.Attempts) != 1 || far.Current().Decision == nil || far.Current().Decision.Verb != jobs.VerbAccept || c.secretsLeft(rec) {
		t.Errorf("%s, %+v", v.State, far.Current())
	}
	if n := len(c.far.Launches()); n != 0 {
		t.Errorf("it was submitted %d times", n)
	}
}
