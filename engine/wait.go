package engine

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"berth/internal/sys/failpoint"
	"berth/jobs"
	"berth/jobs/store"
)

// Wait polls the ledger until the job is final and returns its last view. The
// scheduler is asked rarely, and ever more so: our own record says first what
// happened. see is called with each view whose state, attempt or reason to wait differs
// from the one before, and when the cluster of a job stops answering or answers again; it may
// be nil.
func (e *Engine) Wait(ctx context.Context, id string, see func(View)) (View, error) {
	views, err := e.WaitAll(ctx, []string{id}, see)
	return views[0], err
}

// WaitAll is Wait for several jobs: it returns when all are final, with a view
// for each. It watches one after the other, and whenever the scheduler is to be
// asked, that is one question about all that are left. see is called for the job
// that is watched.
func (e *Engine) WaitAll(ctx context.Context, ids []string, see func(View)) ([]View, error) {
	views := make([]View, len(ids))
	for i := range ids {
		if views[i].Record != nil {
			continue // it ended while another one was waited for
		}
		others := func() (recs []*jobs.Record, took func([]View)) {
			var at []int
			for j := i + 1; j < len(ids); j++ {
				if views[j].Record != nil {
					continue
				}
				if rec, err := e.Store.Load(ids[j]); err == nil {
					recs, at = append(recs, rec), append(at, j)
				}
			}
			return recs, func(seen []View) {
				for n, v := range seen {
					if v.State.Final() {
						views[at[n]] = v
					}
				}
			}
		}
		v, err := e.wait(ctx, ids[i], others, see)
		views[i] = v
		if err != nil {
			return views, err
		}
	}
	return views, nil
}

// wait is Wait; with each question to the scheduler, others are asked about, too.
func (e *Engine) wait(ctx context.Context, id string, others func() ([]*jobs.Record, func([]View)), see func(View)) (View, error) {
	const (
		fast  = 100 * time.Millisecond
		slow  = 2 * time.Second
		often = 5 * time.Second
		rare  = 20 * time.Second
		soon  = time.Second // while the end of a job that waits is asked for
		// Between two questions over ssh: the least, and the most while nothing
		// comes.
		far, farther = 500 * time.Millisecond, 5 * time.Second
		// share is how much of the time may be spent on looking at many jobs.
		share = 10
	)
	var last jobs.State
	var attempts int
	var lost, told bool
	var why string
	var written int64
	asked, ask := e.Now(), often
	most := slow
	for pause := fast; ; pause = min(pause*5/4, most) {
		rec, err := e.Store.Load(id)
		if err != nil {
			return View{}, err
		}
		v := View{Record: rec, State: jobs.StateOf(rec), AsOf: e.Now()}
		if rec.Cancel != nil && v.State == jobs.StatePending {
			ask = soon
		}
		if rec.Spec.Login != nil && !v.State.Final() && e.Now().Sub(asked) < ask {
			v = e.look(ctx, rec)
			pause, most = max(pause, far), farther
			if n := output(v.Record); n != written {
				written, pause = n, far
			}
		}
		if due := e.Now().Sub(asked) >= ask; v.State.Final() || due {
			began, recs, took := e.Now(), []*jobs.Record{rec}, func([]View) {}
			if due {
				var more []*jobs.Record
				more, took = others()
				recs = append(recs, more...)
			}
			seen := e.Reconcile(jobs.WithPatience(ctx), recs)
			v = seen[0]
			took(seen[1:])
			asked = e.Now()
			ask = max(min(ask*5/4, rare), share*asked.Sub(began))
		}
		// A lost connection changes nothing: it comes back, or the caller gives up.
		gone := v.AskError != nil && rec.Spec.Login != nil
		if v.State != last || gone != lost || len(v.Attempts) != attempts {
			last, attempts, lost, pause, ask = v.State, len(v.Attempts), gone, fast, often
			told = false
		}
		if v.Asked && v.Status.Explanation != why {
			why, told = v.Status.Explanation, false
		}
		if !told && see != nil {
			see(v)
		}
		told = true
		if gone && jobs.KindOf(v.AskError) == jobs.KindNotFound {
			return v, v.AskError
		}
		if gone {
			pause = max(pause, slow)
		}
		if v.State.Final() {
			return v, nil
		}
		if err := e.Sleep(ctx, pause); err != nil {
			return v, err
		}
	}
}

// look brings one job on a cluster up to date, as far as its own record goes.
func (e *Engine) look(ctx context.Context, rec *jobs.Record) View {
	recs, errs := e.fetch(ctx, []*jobs.Record{rec})
	v := View{Record: recs[0], State: jobs.StateOf(recs[0]), AsOf: e.Now()}
	if errs[0] != nil && !v.State.Final() {
		v.unasked(errs[0])
	}
	return v
}

// output is how much of a job's output is here.
func output(r *jobs.Record) (n int64) {
	for _, name := range []string{store.FileStdout, store.FileStderr} {
		if fi, err := os.Stat(filepath.Join(r.Current().Dir, name)); err == nil {
			n += fi.Size()
		}
	}
	return n
}

// Cancel requests the end of jobs. The request is recorded first, so that it holds
// even if the scheduler is unavailable; ended jobs are left alone. A failure with
// one job or scheduler does not stop the others.
func (e *Engine) Cancel(ctx context.Context, views []View, by string) error {
	type order struct {
		sc      jobs.Scheduler
		handles []jobs.Handle
	}
	orders := map[string]*order{}
	var wished []*jobs.Record
	var errs []error
	host, _ := os.Hostname()
	for i := range views {
		v := &views[i]
		if v.State.Final() {
			continue
		}
		if _, err := store.SetCancel(v.Dir, jobs.Cancel{Version: 1, Time: e.Now().UTC(), By: by, Host: host}); err != nil {
			errs = append(errs, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the cancel of job " + jobs.Short(v.Spec.ID), Err: err})
		}
		if rec, err := store.LoadDir(v.Dir); err == nil {
			v.Record = rec // with what was submitted until now; later submitters see the request
		}
		wished = append(wished, v.Record)
	}
	failpoint.Hit("cancel.noted")
	wished, untold := e.fetch(ctx, wished) // of a cluster, with attempts that are not known here
	for i, v := range wished {
		if untold[i] != nil { // its scheduler is there, too
			errs = append(errs, untold[i])
			continue
		}
		if a := v.Current(); a != nil && a.Submitted != nil {
			sc, where, err := e.schedulerOf(&v.Spec)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if orders[where] == nil {
				orders[where] = &order{sc: sc}
			}
			orders[where].handles = append(orders[where].handles, a.Submitted.Handle)
			orders[where].handles = append(orders[where].handles, v.StandbyHandles()...)
		}
	}
	for _, o := range orders {
		if err := o.sc.Cancel(ctx, o.handles); err != nil {
			errs = append(errs, err)
		}
	}
	failpoint.Hit("cancel.asked")
	e.endBetween(ctx, wished)
	e.endUnbegun(ctx, wished)
	return errors.Join(errs...)
}

// endUnbegun ends those of the jobs that no runner has begun, and cancels their
// reapers, which are not needed then. If it fails or is killed, the reapers end the
// jobs when they start, as they do behind a login host. The reaper of a running job
// stays: the runner cancels it, unless the runner is killed before.
func (e *Engine) endUnbegun(ctx context.Context, wished []*jobs.Record) {
	ctx = jobs.WithUrgency(ctx) // what is known is from before the cancel
	var unbegun []*jobs.Record
	for _, r := range wished {
		if a := r.Current(); a == nil || a.Claim != nil || a.Submitted == nil || a.Over() || r.Spec.Login != nil {
			continue
		}
		if rec, err := store.LoadDir(r.Dir); err == nil {
			unbegun = append(unbegun, rec)
		}
	}
	idle := map[string][]*jobs.Record{}
	for _, v := range e.reconcile(ctx, unbegun) {
		if a := v.Current(); a.Over() && a.Reaper != nil {
			_, where, _ := e.schedulerOf(&v.Spec)
			idle[where] = append(idle[where], v.Record)
		}
	}
	for _, recs := range idle {
		var names []string
		for _, r := range recs {
			names = append(names, r.Current().Reaper.Handle.Name)
		}
		sc, _, err := e.schedulerOf(&recs[0].Spec)
		if err != nil {
			continue
		}
		found, err := sc.Find(ctx, names) // a reaper may have submitted a successor of the same name
		if err != nil {
			continue // a reaper that is not needed ends by itself
		}
		_ = sc.Cancel(ctx, slices.Collect(maps.Values(found)))
	}
}

// endBetween ends those of the jobs that are between two attempts. No runner could
// see the request then, so the next attempt is cancelled before it starts.
func (e *Engine) endBetween(ctx context.Context, wished []*jobs.Record) {
	for _, r := range wished {
		if a := r.Current(); a == nil || !a.Over() || decidedThere(&r.Spec) {
			continue
		}
		if rec, err := store.LoadDir(r.Dir); err == nil {
			e.follow(ctx, &View{Record: rec, State: jobs.StateOf(rec)}, nil)
		}
	}
}
