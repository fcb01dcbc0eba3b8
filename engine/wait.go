package engine

import (
	"context"
	"errors"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// Wait polls the ledger until the job is final and returns its last view. The
// scheduler is asked seldom, and ever more so: our own record says first what
// happened. see is called with each view whose state differs from the one
// before; it may be nil.
func (e *Engine) Wait(ctx context.Context, id string, see func(View)) (View, error) {
	const (
		fast  = 100 * time.Millisecond
		slow  = 2 * time.Second
		often = 5 * time.Second
		rare  = 20 * time.Second
		soon  = time.Second // while the end of a job that waits is asked for
	)
	var last jobs.State
	asked, ask := e.Now(), often
	for pause := fast; ; pause = min(pause*5/4, slow) {
		rec, err := e.Store.Load(id)
		if err != nil {
			return View{}, err
		}
		v := View{Record: rec, State: jobs.StateOf(rec), AsOf: e.Now()}
		if rec.Cancel != nil && v.State == jobs.StatePending {
			ask = soon
		}
		if v.State.Final() || e.Now().Sub(asked) >= ask {
			v = e.Reconcile(ctx, []*jobs.Record{rec})[0]
			asked, ask = e.Now(), min(ask*5/4, rare)
		}
		if v.State != last {
			last, pause, ask = v.State, fast, often
			if see != nil {
				see(v)
			}
		}
		if v.State.Final() {
			return v, nil
		}
		if err := e.Sleep(ctx, pause); err != nil {
			return v, err
		}
	}
}

// Cancel asks for the end of jobs. The wish is recorded first, so that it holds
// even if the scheduler cannot be reached; ended jobs are left alone. What goes
// wrong with one job or scheduler keeps it from no other.
func (e *Engine) Cancel(ctx context.Context, views []View, by string) error {
	handles := map[string][]jobs.Handle{}
	var errs []error
	for i := range views {
		v := &views[i]
		if v.State.Final() {
			continue
		}
		if _, err := store.SetCancel(v.Dir, jobs.Cancel{Version: 1, Time: e.Now().UTC(), By: by}); err != nil {
			errs = append(errs, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the cancel of job " + jobs.Short(v.Spec.ID), Err: err})
		}
		if a := v.Current(); a != nil && a.Submitted != nil {
			handles[v.Spec.Scheduler] = append(handles[v.Spec.Scheduler], a.Submitted.Handle)
		}
	}
	for name, hs := range handles {
		sc, err := e.scheduler(name)
		if err == nil {
			err = sc.Cancel(ctx, hs)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
