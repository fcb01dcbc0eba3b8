package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"berth/internal/node/conclude"
	"berth/internal/node/notice"
	"berth/internal/sys/failpoint"
	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
)

// classOf is why an attempt failed that berth or the site ended.
func classOf(err error) jobs.Class {
	if errors.As(err, &errUncounted{}) {
		return jobs.ClassPolicy
	}
	switch jobs.KindOf(err) {
	case jobs.KindConfig, jobs.KindUsage, jobs.KindNotFound, jobs.KindAuth:
		return jobs.ClassPolicy // the same is missing the next time
	default:
		return jobs.ClassInfra
	}
}

// decide records what follows the attempt, as far as this can be decided on the
// node: only the scheduler knows who ended an attempt with a signal. The decision
// is recorded before any result of the attempt counts outside of its directory, so
// that never two attempts count. An accepted result counts even if this process is
// killed now, because the decision holds the exit record. When another process has
// decided first, this attempt is late, and its results are kept aside.
func (r *attempt) decide(rec *jobs.ExitRecord) {
	if r.spec.Retry == nil {
		return
	}
	var full *jobs.Record
	err := r.insist("what follows cannot be decided", 0, func() (err error) {
		full, err = store.LoadOf(r.dir)
		return err
	})
	if err != nil {
		r.note("what follows is left to others: " + err.Error())
		return
	}
	a := full.Current()
	if a.Info.ID != r.info.ID || a.Decision != nil {
		r.late(rec)
		return
	}
	ended := *rec
	ended.Ended = time.Now().UTC()
	a.Exit = &ended
	step := jobs.Next(full, nil, time.Now())
	if step.Do != jobs.DoDecide {
		return
	}
	d := step.Decision
	d.By = fmt.Sprintf("the runner (process %d on %s)", r.claim.PID, r.claim.Host)
	if d.Verb == jobs.VerbAccept { // from here on others can finish it
		ended.Notes = r.notes
		d.Exit = &ended
	}
	won := false
	err = r.insist("what follows could not be recorded", 0, func() (err error) {
		won, err = store.SetDecision(r.dir, d)
		return err
	})
	switch {
	case err != nil:
		r.note("what follows could not be recorded, and is left to others: " + err.Error())
	case !won:
		r.late(rec)
	default:
		r.decided.Store(true)
		r.verb, r.decision = d.Verb, d
		r.event(string(d.Verb), d.Reason)
		if d.Verb == jobs.VerbAccept {
			store.DropSecrets(r.jobDir)
		}
	}
}

// late is the end of an attempt whose place another has taken.
func (r *attempt) late(rec *jobs.ExitRecord) {
	was := string(rec.State)
	rec.State, rec.Code = jobs.StateError, jobs.CodeInfra
	rec.Reason, rec.Hint = "it came back after another attempt had taken its place ("+was+")", "what it did is kept in "+r.dir+", and counts for nothing"
	r.verb = jobs.VerbRetry
}

// accepted tells whether the attempt's result is the job's.
func (r *attempt) accepted() bool { return r.spec.Retry == nil || r.verb == jobs.VerbAccept }

// goOn begins the next attempt, when that was decided here, and makes an end of
// who would do so else. Whoever looks at the job does so too, should this fail.
func (r *attempt) goOn(ctx context.Context) {
	if !r.decided.Load() {
		return
	}
	if r.verb == jobs.VerbRetry && !r.next(ctx) {
		return // the reaper does that
	}
	r.dismiss(ctx)
}

// tell sends the notices that are due now that the attempt has ended. It comes before
// the reaper is cancelled, which sends them should this process be killed.
func (r *attempt) tell(ctx context.Context) {
	if r.spec.Notify == nil || r.rank != nil {
		return
	}
	if ledger, err := store.At(r.stateDir()); err == nil {
		notice.Send(context.WithoutCancel(ctx), ledger, nil)
	}
}

// dismiss takes out of the queue what is not needed any more, the reaper of the
// attempt, and after the last attempt the standbys: one request, where
// the scheduler would else start a job on a node and end it, with prolog and epilog, to
// find nothing to do; and a place less among those that the site lets a user
// have.
func (r *attempt) dismiss(ctx context.Context) {
	rec, err := store.LoadOf(r.dir)
	if err != nil {
		return
	}
	var ids []string
	for i := range rec.Attempts {
		// The reaper stays until the next attempt has begun.
		if a := &rec.Attempts[i]; a.Info.ID == r.info.ID && a.Reaper != nil && (r.verb != jobs.VerbRetry || i+1 < len(rec.Attempts)) {
			ids = append(ids, a.Reaper.Handle.NativeID)
		}
	}
	if r.verb == jobs.VerbAccept {
		for _, h := range rec.StandbyHandles() {
			if h.NativeID != r.claim.NativeID {
				ids = append(ids, h.NativeID)
			}
		}
	}
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := r.batch.Cancel(ctx, r.on, ids); err != nil {
		r.log.Info("what waits in the queue was left to find out by itself that it is not needed", "err", err)
	}
}

// next begins the next attempt, and tells whether that could be done.
func (r *attempt) next(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute) // a submission waits for a full queue
	defer cancel()
	if err := r.callClient(ctx, "follow", r.spec.ID); err != nil {
		r.event("not_followed", err.Error())
		r.log.Error("the next attempt could not be begun; the reaper does that, or the next berth command that looks at the job", "err", err)
		return false
	}
	r.event("followed", "")
	return true
}

// guard has the job submitted that looks after this attempt, should it have none
// after a while: whoever submitted the attempt has that done behind its own back,
// and may have been ended before.
func (r *attempt) guard(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(3 * r.times.Beat):
	}
	rec, err := store.LoadOf(r.dir)
	if err != nil || !rec.Unguarded() || rec.Current().Info.ID != r.info.ID {
		return
	}
	if err := r.callClient(ctx, jobs.VerbFollow, "--guard", r.spec.ID); err != nil {
		r.log.Info("nothing could be submitted that looks after this attempt; the next berth command that looks at the job does that", "err", err)
		return
	}
	r.event("guarded", "")
}

// tooLate returns an error for an attempt that counts as ended: it must not begin,
// because the next attempt may have begun.
func tooLate(a *jobs.Attempt) error {
	e := &jobs.Error{Kind: jobs.KindAgain, Hint: "it came too late; nothing was touched"}
	switch {
	case a.Verdict != nil:
		v := a.Verdict
		e.Msg = "attempt " + jobs.Short(a.Info.ID) + " counts as " + string(v.State) + " since " + v.Time.Format(time.RFC3339) + " (" + v.Reason + ")"
	case a.Decision != nil:
		e.Msg = "attempt " + jobs.Short(a.Info.ID) + " was decided upon at " + a.Decision.Time.Format(time.RFC3339) + " (" + a.Decision.Reason + ")"
	default:
		return nil
	}
	return e
}

// restarted returns the attempt that a requeued job of the scheduler runs. The
// scheduler has started the job again under its old id, with the script of an
// attempt, after a preemption, a lost node or a requeue by a person. The attempt
// before the requeue is over then, and the job runs the next one, unless that has
// begun elsewhere meanwhile.
func restarted(rec *jobs.Record, a *jobs.Attempt, job jobs.NodeJob) (*jobs.Attempt, error) {
	id, count, cur := job.ID, job.Restart, rec.Current()
	if cur.Claim == nil && (cur.Info.ID == a.Info.ID || cur.Submitted != nil && cur.Submitted.Handle.NativeID == id) {
		return cur, nil // the start before this one ended before its claim
	}
	came := &jobs.Error{Kind: jobs.KindAgain, Msg: fmt.Sprintf("the scheduler has requeued job %s, and attempt %d has begun elsewhere", id, cur.N),
		Hint: "nothing was touched"}
	if cur.Claim == nil || cur.Claim.NativeID != id || cur.Claim.Restart >= count {
		return nil, came
	}
	if cur.Unfinished() { // the process that follows it finds out whether its runner is alive
		return nil, &jobs.Error{Kind: jobs.KindAgain,
			Msg:  fmt.Sprintf("the scheduler has requeued job %s, and the result of attempt %d is accepted", id, cur.N),
			Hint: "nothing was touched"}
	}
	if cur.Exit == nil && cur.Verdict == nil {
		_, err := conclude.Verdict(cur.Dir, jobs.Verdict{
			Version: 1,
			State:   jobs.StateError,
			Class:   jobs.ClassPreempted,
			Word:    jobs.WordRequeued,
			Time:    time.Now().UTC(),
			Reason:  fmt.Sprintf("the scheduler has requeued the job (restart %d) before its runner recorded an end", count),
		})
		if err != nil {
			return nil, err
		}
	}
	if cur.Decision == nil {
		now, err := store.LoadDir(rec.Dir)
		if err != nil {
			return nil, err
		}
		word := jobs.Status{State: jobs.StateError, Class: jobs.ClassPreempted, NativeState: jobs.WordRequeued,
			Reason: fmt.Sprintf("restart %d", count)}
		if err := decideHere(now, &word, fmt.Sprintf("restart %d", count)); err != nil {
			return nil, err
		}
	}
	now, err := store.LoadDir(rec.Dir)
	if err != nil {
		return nil, err
	}
	step := jobs.Next(now, nil, time.Now())
	if step.Do != jobs.DoBegin {
		return nil, came
	}
	if !cur.Info.Change.SameRequest(step.Decision.Change) {
		return nil, &jobs.Error{Kind: jobs.KindAgain,
			Msg: fmt.Sprintf("the scheduler has requeued job %s as it was, and attempt %d needs another one: %s",
				id, cur.N+1, step.Decision.Reason),
			Hint: "berth status " + jobs.Short(rec.Spec.ID) + " submits that"}
	}
	// The same job of the scheduler, which knows it by the name of the one before.
	var h *jobs.Handle
	if cur.Submitted != nil {
		h = &cur.Submitted.Handle
	}
	return beginHere(now, step.Decision, cur.Info.Name, h)
}

// decideHere records what follows the current attempt, if that can be said. who
// this process is, of those that the runner can be, stands in the decision.
func decideHere(rec *jobs.Record, word *jobs.Status, who string) error {
	step := jobs.Next(rec, word, time.Now())
	if step.Do != jobs.DoDecide {
		return nil
	}
	host, _ := os.Hostname()
	d := step.Decision
	d.By = fmt.Sprintf("the runner of %s (process %d on %s)", who, os.Getpid(), host)
	won, err := store.SetDecision(rec.Current().Dir, d)
	if won && err == nil && d.Verb == jobs.VerbAccept {
		store.DropSecrets(rec.Dir)
	}
	return err
}

// beginHere makes the next attempt the one that this process runs, in a job that
// the scheduler knows by this name and handle; nil is not known.
func beginHere(rec *jobs.Record, d jobs.Decision, name string, h *jobs.Handle) (*jobs.Attempt, error) {
	cur := rec.Current()
	script, err := os.ReadFile(store.ScriptPath(cur.Dir))
	if err != nil {
		return nil, err
	}
	attempt, err := ids.New()
	if err != nil {
		return nil, err
	}
	info := jobs.AttemptInfo{Version: 1, ID: attempt, Number: cur.N + 1, Name: name, Created: time.Now().UTC(), Change: d.Change}
	failpoint.Hit("restart.begin")
	dir, won, err := store.Begin(rec.Dir, info, string(script))
	if err != nil {
		return nil, err
	}
	if !won {
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: fmt.Sprintf("attempt %d has begun elsewhere", info.Number), Hint: "nothing was touched"}
	}
	if h != nil {
		if _, err := store.SetSubmitted(dir, jobs.Submitted{Version: 1, Handle: *h, Time: time.Now().UTC()}); err != nil {
			return nil, err
		}
	}
	failpoint.Hit("restart.noted")
	next, err := store.LoadAttempt(dir)
	if err == nil && next.Info.ID != info.ID {
		err = errors.New("it is another's")
	}
	return next, err
}
