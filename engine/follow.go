package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"berth/internal/sys/failpoint"
	"berth/jobs"
	"berth/jobs/store"
)

// settleRetry takes over how often a task may be tried again.
func settleRetry(s *jobs.Spec, p *jobs.Retry) {
	if p == nil {
		p = jobs.DefaultRetry()
	}
	if p != nil && p.Attempts > 0 {
		s.Retry = p
	}
}

// follow does what a job needs after an attempt has ended: it records what
// [jobs.Next] decides, and begins the next attempt. Every process that looks at the
// job may do so; of several, one succeeds. word is the scheduler's status of the
// current attempt; nil is that the scheduler was not asked or did not know it.
func (e *Engine) follow(ctx context.Context, v *View, word *jobs.Status) {
	if decidedThere(&v.Spec) {
		e.followThere(ctx, []*View{v})
		return
	}
	for {
		step := jobs.Next(v.Record, word, e.Now())
		switch step.Do {
		case jobs.DoNothing, jobs.DoAsk:
			v.State = jobs.StateOf(v.Record)
			return
		case jobs.DoDecide:
			if err := e.decide(v, step.Decision); err != nil {
				v.Note = "what follows could not be recorded: " + err.Error()
				return
			}
		case jobs.DoBegin:
			if err := e.begin(ctx, v, step.Decision); err != nil {
				v.State, v.Unfollowed = jobs.StateOf(v.Record), err
				if !e.elsewhere(&v.Spec) {
					e.mark(v.Current(), "the next attempt could not be submitted", err, "berth follow "+jobs.Short(v.Spec.ID))
				}
				v.Note = "the next attempt could not be submitted, and the job waits for the next command that looks at it: " + err.Error()
				if h := jobs.HintOf(err); h != "" {
					v.Note += " (" + h + ")"
				}
				return
			}
			v.State = jobs.StateOf(v.Record)
			return
		}
	}
}

// decide records a decision, or reads the one that another process has recorded.
func (e *Engine) decide(v *View, d jobs.Decision) error {
	a := v.Current()
	host, _ := os.Hostname()
	d.By = fmt.Sprintf("process %d on %s", os.Getpid(), host)
	if _, err := store.SetDecision(a.Dir, d); err != nil {
		return err
	}
	failpoint.Hit("follow.decided")
	fresh, err := store.LoadAttempt(a.Dir)
	if err != nil {
		return err
	}
	if fresh.Decision == nil {
		return errors.New("it is not there")
	}
	a.Decision = fresh.Decision
	if a.Decision.Verb == jobs.VerbAccept {
		store.DropSecrets(v.Dir)
	}
	v.State = jobs.StateOf(v.Record)
	return nil
}

// begin makes the next attempt and hands it to the scheduler. When that has
// nothing of it, the attempt is taken away again, for the next who looks.
func (e *Engine) begin(ctx context.Context, v *View, d jobs.Decision) error {
	s := v.Spec
	if e.elsewhere(&s) {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "the local queue of " + s.Host + " cannot be reached from here",
			Hint: "on that machine: berth status " + jobs.Short(s.ID)}
	}
	if left, err := e.leave(ctx, v, d); left || err != nil {
		return err
	}
	behind, all, err := e.behind(ctx, &s, true)
	if err != nil {
		return err
	}
	if d.Class == jobs.ClassWaiting && (all || s.Scheduler == jobs.SchedulerLocal) {
		d.Change.NotBefore = time.Time{} // the scheduler itself holds it back
	}
	if s.Scheduler == jobs.SchedulerLocal && v.Cancel == nil && e.Now().Before(d.Change.NotBefore) {
		v.Note = "it is tried again after " + d.Change.NotBefore.Format(time.RFC3339)
		return nil
	}
	sc, _, err := e.schedulerOf(&s)
	if err != nil {
		return err
	}
	at, err := e.selectSite(ctx, &s)
	if err != nil {
		return err
	}
	info, err := attemptInfo(&s, "", e.Now())
	if err != nil {
		return err
	}
	info.Number, info.Change = v.Current().N+1, d.Change
	adir := store.AttemptDir(v.Dir, info.Number)
	l, err := e.again(s, info, adir, at, d.Change.NotBefore.Sub(d.Time))
	if err != nil {
		return err
	}
	l.Behind = behind
	script, err := sc.Render(l)
	if err != nil {
		return err
	}
	_, won, err := store.Begin(v.Dir, info, script)
	if err != nil {
		return err
	}
	rec, lerr := store.LoadDir(v.Dir)
	if lerr != nil {
		return lerr
	}
	v.Record = rec
	if !won {
		return nil // another process submits it
	}
	if v.Cancel != nil {
		return e.settle(ctx, v, cancelledBefore)
	}
	failpoint.Hit("follow.begun")
	h, err := sc.Submit(ctx, l, store.ScriptPath(adir))
	failpoint.Hit("follow.answered")
	if unclear(err) {
		h, err = e.resolveUnclear(ctx, sc, info.Name, err)
	}
	a := v.Current()
	switch {
	case err == nil:
		sub := jobs.Submitted{Version: 1, Handle: h, Time: e.Now().UTC()}
		if _, err := store.SetSubmitted(a.Dir, sub); err != nil {
			return err // it is found by its name
		}
		failpoint.Hit("follow.noted")
		a.Submitted = &sub
		if store.Cancelled(v.Dir) { // meanwhile, by a process that did not see this attempt
			return sc.Cancel(ctx, []jobs.Handle{h})
		}
		e.Guard(ctx, v.Record)
		return nil
	case unclear(err):
		return err
	case jobs.KindOf(err) == jobs.KindRejected && len(d.Change.Exclude) == 0:
		return e.settle(ctx, v, refusedNext(v.Record, err))
	}
	failpoint.Hit("follow.takeback")
	if terr := store.TakeBack(v.Dir, info); terr != nil {
		return errors.Join(err, terr)
	}
	if rec, lerr := store.LoadDir(v.Dir); lerr == nil {
		v.Record = rec
	} else if jobs.KindOf(err) == jobs.KindRejected {
		return lerr
	}
	if jobs.KindOf(err) == jobs.KindRejected && v.Current().Decision != nil && v.Current().Info.Number == info.Number-1 {
		// Without the nodes to keep away from there may be none left, and a node
		// that has failed is better than none.
		d.Change.Exclude = nil
		return e.begin(ctx, v, d)
	}
	return err
}

// refusedNext is the verdict on an attempt that the scheduler has refused. What
// people look for is why there had to be another one.
func refusedNext(r *jobs.Record, err error) jobs.Verdict {
	verdict := jobs.Verdict{State: jobs.StateError, Class: jobs.ClassPolicy, Reason: "the next attempt was refused: " + err.Error(), Hint: jobs.HintOf(err)}
	if len(r.Attempts) < 2 {
		return verdict
	}
	reason, hint := "", ""
	switch a := &r.Attempts[len(r.Attempts)-2]; {
	case a.Exit != nil:
		reason, hint = a.Exit.Reason, a.Exit.Hint
	case a.Verdict != nil:
		reason, hint = a.Verdict.Reason, a.Verdict.Hint
	}
	if reason != "" {
		verdict.Reason = reason + "; and " + verdict.Reason
		verdict.Hint = strings.TrimPrefix(strings.TrimSuffix(hint+"; "+verdict.Hint, "; "), "; ")
	}
	return verdict
}

// elsewhere tells whether a job is in the local queue of another machine.
func (e *Engine) elsewhere(s *jobs.Spec) bool {
	host, _ := os.Hostname()
	return s.Scheduler == jobs.SchedulerLocal && s.Host != host
}

// settle ends an attempt that the scheduler never had.
func (e *Engine) settle(ctx context.Context, v *View, verdict jobs.Verdict) error {
	a := v.Current()
	verdict.Version, verdict.Time = 1, e.Now().UTC()
	if _, err := store.SetVerdict(a.Dir, verdict); err != nil {
		return err
	}
	a.Verdict = &verdict
	e.follow(ctx, v, nil)
	return nil
}

// again makes what the scheduler is asked to start for a further attempt, with
// what that has different from the job; it is to begin within most.
func (e *Engine) again(s jobs.Spec, info jobs.AttemptInfo, adir string, at selected, most time.Duration) (jobs.Launch, error) {
	c := info.Change
	s.Resources = c.Resources(s.Resources)
	l, err := e.launch(&s, info, adir, at)
	if s.Clustered() {
		l.Exclude = c.Exclude
		if wait := c.NotBefore.Sub(e.Now()); !c.NotBefore.IsZero() && wait > 0 {
			l.Wait = min(wait, most)
		}
	}
	return l, err
}
