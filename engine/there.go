package engine

import (
	"context"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// decidedThere reports whether verdicts, decisions and new attempts of a job are
// made on its cluster only. Its runners write there, and a file that is created
// exclusively selects one writer only if all processes see the same directory. The
// record on this machine is a copy; two copies would lead to two decisions. So a
// job also goes on while no user is logged in here.
func decidedThere(s *jobs.Spec) bool { return s.Login != nil && s.Retry != nil }

// followThere has the clusters of jobs do what the jobs need done next, each of
// them once for all of its jobs, and reads what came of it.
func (e *Engine) followThere(ctx context.Context, views []*View) {
	if len(views) == 0 {
		return
	}
	recs := make([]*jobs.Record, len(views))
	for i, v := range views {
		recs[i] = v.Record
	}
	recs, errs := e.refreshAll(ctx, recs, func(*jobs.Record) bool { return true }, site.Follow)
	for i, v := range views {
		v.Record, v.State = recs[i], jobs.StateOf(recs[i])
		a := v.Current()
		switch err := errs[i]; {
		case err == nil && a.Submitted == nil && a.Claim == nil && !a.Over():
			v.Note = e.unconfirmed(a)
		case err == nil:
		case jobs.KindOf(err) == jobs.KindNotFound && a.Submitted == nil:
			e.neverArrived(ctx, v)
		default:
			v.unasked(err)
		}
	}
}

// unguardedThere tells whether a job's cluster has yet to submit what looks after
// its current attempt. What it could not submit is tried again by `berth follow`.
func unguardedThere(r *jobs.Record) bool {
	a := r.Current()
	return decidedThere(&r.Spec) && a != nil && a.Submitted != nil && a.Reaper == nil && a.Unfollowed == nil && !a.Over()
}

// guardThere has the cluster submit that. When it cannot be reached, whoever
// looks next does so.
func (e *Engine) guardThere(ctx context.Context, r *jobs.Record) {
	recs, _ := e.refreshAll(ctx, []*jobs.Record{r}, func(*jobs.Record) bool { return true }, site.Follow)
	*r = *recs[0]
}

// neverArrived is for a job whose record is not on its cluster: the submitting
// process was killed before that. There is nothing there that could decide.
func (e *Engine) neverArrived(ctx context.Context, v *View) {
	a := v.Current()
	if !a.Over() && e.Now().Sub(a.Info.Created) < submitting {
		v.Note = e.unconfirmed(a)
		return
	}
	if !a.Over() {
		verdict := neverSubmitted
		if v.Cancel != nil {
			verdict = cancelledBefore
		}
		verdict.Class = jobs.ClassPolicy // nothing is there to be tried again
		e.conclude(ctx, v, verdict)
	}
	if step := jobs.Next(v.Record, nil, e.Now()); step.Do == jobs.DoDecide && step.Decision.Verb == jobs.VerbAccept {
		if err := e.decide(v, step.Decision); err != nil {
			v.Note = "what follows could not be recorded: " + err.Error()
		}
	}
}

var neverSubmitted = jobs.Verdict{State: jobs.StateError, Reason: "it was never submitted: the submitting process ended before the scheduler had it",
	Hint: "submit it again"}

// unconfirmed says how long an attempt may be on its way to the scheduler.
func (e *Engine) unconfirmed(a *jobs.Attempt) string {
	return "its submission is not confirmed; it counts as failed at " + a.Info.Created.Add(submitting).Format(time.RFC3339) +
		" if the scheduler does not know it by then"
}

// refusedHere records that a job was not submitted and that its record could not be
// removed from its cluster, so that no process there submits it again.
func (e *Engine) refusedHere(r *jobs.Record, cause error) error {
	if !decidedThere(&r.Spec) {
		return nil
	}
	_, err := store.SetVerdict(r.Current().Dir, jobs.Verdict{
		Version: 1,
		State:   jobs.StateError,
		Class:   jobs.ClassPolicy,
		Reason:  "it was not submitted: " + cause.Error(),
		Hint:    jobs.HintOf(cause),
		Time:    e.Now().UTC(),
	})
	return err
}
