package engine

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"berth/jobs"
	"berth/jobs/store"
)

// Two that wait for the last job of a label at once send one notice. It is recorded
// with the job, and a refused submission keeps none back.
func TestNoticeOfWaiters(t *testing.T) {
	f := newFixture(t)
	var sent atomic.Int32
	f.webhook = func(_ context.Context, file string, _ []byte) error {
		if file != "/hook" {
			t.Errorf("file %q", file)
		}
		sent.Add(1)
		return nil
	}
	how := Choice{Notify: &jobs.Notify{WebhookFile: "/hook"}}
	labelled := task()
	labelled.Labels = []string{"sweep1"}
	r := f.submit(labelled, how)
	refuse := func(jobs.Launch) error { return &jobs.Error{Kind: jobs.KindRejected, Msg: "no"} }
	f.slurm.Submits, f.queue.Submits = refuse, refuse
	if _, err := f.Submit(t.Context(), f.plan(labelled, how), labelled); err == nil {
		t.Fatal("it was taken")
	}
	f.Reconcile(t.Context(), []*jobs.Record{r})
	if n := sent.Load(); n != 0 {
		t.Fatalf("%d notices of a job that goes on", n)
	}
	_, err := store.SetExit(r.Current().Dir, jobs.ExitRecord{Version: 1, State: jobs.StateCompleted, Ended: f.Now()})
	must(t, err)
	must(t, second(store.SetDecision(r.Current().Dir, jobs.Decision{Version: 1, Verb: jobs.VerbAccept, State: jobs.StateCompleted})))
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if rec, err := f.Store.Load(r.Spec.ID); err == nil {
				f.Reconcile(t.Context(), []*jobs.Record{rec})
			}
		})
	}
	both.Wait()
	left, err := filepath.Glob(filepath.Join(f.Store.Home(), "notices", "sweep1", "*"))
	must(t, err)
	if n := sent.Load(); n != 1 || len(left) != 1 || filepath.Base(left[0]) != r.Spec.ID+".webhook" {
		t.Errorf("%d notices, %q", n, left)
	}
}

func second(_ bool, err error) error { return err }

// Of a job on a cluster behind a login host this machine tells alone: the record there
// asks for no notice.
func TestNoticeFar(t *testing.T) {
	c := newCluster(t)
	sent := 0
	c.webhook = func(context.Context, string, []byte) error { sent++; return nil }
	r := c.submit(c.away(task()), Choice{Notify: &jobs.Notify{WebhookFile: "/hook"}})
	there, err := store.LoadDir(store.JobDirOf(c.adir(r)))
	must(t, err)
	if there.Spec.Notify != nil || r.Spec.Notify == nil {
		t.Errorf("there %+v, here %+v", there.Spec.Notify, r.Spec.Notify)
	}
	c.starts(r)
	c.ends(r)
	for range 2 {
		c.see(r)
	}
	if sent != 1 {
		t.Errorf("%d notices", sent)
	}
}
