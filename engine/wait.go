package engine

import (
	"context"
	"path/filepath"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// Wait polls the ledger until the job is final and returns its last view. The
// scheduler is asked seldom: our own record says first what happened. see is
// called with each view whose state differs from the one before; it may be nil.
func (e *Engine) Wait(ctx context.Context, id string, see func(View)) (View, error) {
	const (
		fast = 100 * time.Millisecond
		slow = 2 * time.Second
		ask  = 5 * time.Second
	)
	var last jobs.State
	var asked time.Time
	for pause := fast; ; pause = min(pause*5/4, slow) {
		rec, err := e.Store.Load(id)
		if err != nil {
			return View{}, err
		}
		v := View{Record: rec, State: jobs.StateOf(rec), AsOf: e.Now()}
		if v.State.Final() || (e.Now().Sub(asked) >= ask && !asked.IsZero()) {
			v = e.Reconcile(ctx, []*jobs.Record{rec})[0]
			asked = e.Now()
		} else if asked.IsZero() {
			asked = e.Now()
		}
		if v.State != last {
			last, pause = v.State, fast
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
// even if the scheduler cannot be reached; ended jobs are left alone. It
// returns the schedulers' errors.
func (e *Engine) Cancel(ctx context.Context, views []View, by string) error {
	handles := map[string][]jobs.Handle{}
	for i := range views {
		v := &views[i]
		if v.State.Final() {
			continue
		}
		if _, err := store.SetCancel(v.Dir, jobs.Cancel{Version: 1, Time: e.Now().UTC(), By: by}); err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "record the cancel of job " + jobs.Short(v.Spec.ID), Err: err}
		}
		if sub := v.Current().Submitted; sub != nil {
			handles[v.Spec.Scheduler] = append(handles[v.Spec.Scheduler], sub.Handle)
		}
	}
	for name, hs := range handles {
		sc, err := e.scheduler(name)
		if err != nil {
			return err
		}
		if err := sc.Cancel(ctx, hs); err != nil {
			return err
		}
	}
	return nil
}

// take brings a result's branch into the user's repository where the runner
// could not, once. Its failure is a note: the bundle stays.
func (e *Engine) take(ctx context.Context, v *View) {
	a := v.Current()
	if a == nil || a.Exit == nil || a.Exit.Result == nil || v.Spec.Workspace == nil {
		return
	}
	res := a.Exit.Result
	if res.Commit == "" || res.Taken || a.Taken != nil {
		return
	}
	if err := e.intake(ctx, v.Spec.Workspace, a.Dir, res); err != nil {
		v.Note = "the branch is not in the repository yet: " + err.Error() + "; it is kept in " + filepath.Join(a.Dir, "result.bundle")
		return
	}
	t := jobs.Taken{Version: 1, Branch: v.Spec.Workspace.Branch, Commit: res.Commit, Time: e.Now().UTC()}
	if _, err := store.SetTaken(a.Dir, t); err != nil {
		v.Note = "record the taken branch: " + err.Error()
		return
	}
	a.Taken = &t
}
