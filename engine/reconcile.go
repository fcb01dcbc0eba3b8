package engine

import (
	"context"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// Times of judging a job that went silent. The runner beats every 10 s.
const (
	// quiet is how old a beat must be before the scheduler is asked about a
	// running job: two beats and a half.
	quiet = 25 * time.Second
	// silent is how old a beat must be before an attempt that its scheduler
	// no longer knows, or whose node is cut off, counts as ended.
	silent = 180 * time.Second
	// settle is how long a scheduler may take to show a job it has accepted.
	settle = 60 * time.Second
)

// View is a record with what is known of it now.
type View struct {
	*jobs.Record
	State  jobs.State
	Asked  bool        // the scheduler was asked and knew the job
	Status jobs.Status // its word, if Asked
	Note   string      // for people
	// AskError is why the scheduler could not be asked; the state is then the
	// last known one.
	AskError error
	AsOf     time.Time
}

// Reconcile brings records up to date: each scheduler is asked once, about all
// its jobs that have not ended by their own record and have gone silent. A
// query that fails changes nothing.
func (e *Engine) Reconcile(ctx context.Context, recs []*jobs.Record) []View {
	now := e.Now()
	views := make([]View, len(recs))
	ask := map[string][]int{}
	for i, r := range recs {
		views[i] = View{Record: r, State: jobs.StateOf(r), AsOf: now}
		if views[i].State.Final() {
			continue
		}
		a := r.Current()
		if a == nil || (a.Claim != nil && now.Sub(a.Beat) < quiet) {
			continue
		}
		if a.Submitted == nil && now.Sub(a.Info.Created) < 2*time.Second {
			continue // being submitted at this moment
		}
		ask[r.Spec.Scheduler] = append(ask[r.Spec.Scheduler], i)
	}
	for name, idx := range ask {
		e.askOne(ctx, name, views, idx)
	}
	for i := range views {
		e.take(ctx, &views[i])
	}
	return views
}

// askOne asks one scheduler about the jobs with these indexes.
func (e *Engine) askOne(ctx context.Context, name string, views []View, idx []int) {
	fail := func(err error) {
		for _, i := range idx {
			views[i].AskError = err
			if b := views[i].Current().Beat; !b.IsZero() {
				views[i].AsOf = b
			} else {
				views[i].AsOf = views[i].Spec.Created
			}
		}
	}
	sc, err := e.scheduler(name)
	if err != nil {
		fail(err)
		return
	}
	if err := e.findLost(ctx, sc, views, idx); err != nil {
		fail(err)
		return
	}
	var handles []jobs.Handle
	for _, i := range idx {
		if sub := views[i].Current().Submitted; sub != nil {
			handles = append(handles, sub.Handle)
		}
	}
	if len(handles) == 0 {
		return
	}
	got, err := sc.Status(ctx, handles)
	if err != nil {
		fail(err)
		return
	}
	for _, i := range idx {
		if sub := views[i].Current().Submitted; sub != nil {
			st, known := got[sub.Handle.Name]
			views[i].Asked, views[i].Status = known, st
			e.judge(&views[i], known, st)
		}
	}
}

// findLost looks by name for attempts whose submission was never confirmed.
func (e *Engine) findLost(ctx context.Context, sc jobs.Scheduler, views []View, idx []int) error {
	var names []string
	for _, i := range idx {
		if a := views[i].Current(); a.Submitted == nil {
			names = append(names, a.Info.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	found, err := sc.Find(ctx, names)
	if err != nil {
		return err
	}
	for _, i := range idx {
		a := views[i].Current()
		if a.Submitted != nil {
			continue
		}
		if h, ok := found[a.Info.Name]; ok {
			sub := jobs.Submitted{Version: 1, Handle: h, Time: e.Now().UTC()}
			if _, err := store.SetSubmitted(a.Dir, sub); err != nil {
				return err
			}
			a.Submitted = &sub
			views[i].State = jobs.StateOf(views[i].Record)
			continue
		}
		if a.Claim == nil && e.Now().Sub(a.Info.Created) > settle {
			e.conclude(&views[i], jobs.Verdict{State: jobs.StateError, Reason: "it was never submitted: the submitting process ended before the scheduler had it", Hint: "submit it again"})
		}
	}
	return nil
}

// judge draws the conclusion from a scheduler's word about an attempt without
// an exit record. While the runner's beat is fresh, no word suffices.
func (e *Engine) judge(v *View, known bool, st jobs.Status) {
	a := v.Current()
	age := e.Now().Sub(a.Beat)
	switch {
	case known && !st.State.Final():
		return
	case known && a.Claim == nil:
		// Ended before a runner began: cancelled while it waited, or the site
		// could not start it.
		verdict := jobs.Verdict{State: st.State, Word: st.Word, Reason: st.Reason}
		switch {
		case v.Cancel != nil:
			verdict.State, verdict.Reason = jobs.StateCancelled, "cancelled before it started"
		case st.State == jobs.StateCancelled:
			verdict.Reason = "cancelled in the scheduler before it started"
		default:
			verdict.State, verdict.Reason = jobs.StateError, "the scheduler ended it before its runner began ("+st.Word+")"
			verdict.Hint = "see " + a.Dir + "/" + jobs.SchedulerLog + "; do the nodes see " + e.Store.Home() + "?"
		}
		e.conclude(v, verdict)
	case known:
		// The batch process has ended, says the node; a node that is cut off
		// says nothing, and may still be running it.
		wait := quiet
		if st.Word == "NODE_FAIL" || st.Word == "BOOT_FAIL" {
			wait = silent
		}
		if age < wait {
			v.Note = "the scheduler says " + st.Word + "; its runner has not recorded the end yet"
			return
		}
		verdict := jobs.Verdict{State: st.State, Word: st.Word, Reason: "its runner ended without a record; the scheduler says " + st.Word}
		if st.State == jobs.StateCompleted || st.State == jobs.StateFailed {
			verdict.State = jobs.StateLost
		}
		if v.Cancel != nil {
			verdict.State = jobs.StateCancelled
		}
		verdict.Hint = "what it left is in " + a.Dir
		e.conclude(v, verdict)
	case a.Claim == nil && e.Now().Sub(a.Submitted.Time) > settle:
		verdict := jobs.Verdict{State: jobs.StateLost, Reason: "the scheduler does not know it any more, and no runner began it"}
		if v.Cancel != nil {
			verdict = jobs.Verdict{State: jobs.StateCancelled, Reason: "cancelled before it started"}
		}
		e.conclude(v, verdict)
	case a.Claim != nil && age > silent:
		e.conclude(v, jobs.Verdict{State: jobs.StateLost, Reason: "its runner has been silent since " + a.Beat.Format(time.RFC3339) + ", and the scheduler does not know it any more", Hint: "what it left is in " + a.Dir})
	}
}

// conclude records a verdict, unless the runner's own record has appeared.
func (e *Engine) conclude(v *View, verdict jobs.Verdict) {
	verdict.Version, verdict.Time = 1, e.Now().UTC()
	fresh, err := store.LoadAttempt(v.Current().Dir)
	if err == nil && fresh.Exit == nil && fresh.Verdict == nil {
		_, err = store.SetVerdict(v.Current().Dir, verdict)
		fresh.Verdict = &verdict
	}
	if err != nil {
		v.AskError = err
		return
	}
	store.DropSecrets(v.Current().Dir)
	fresh.N = v.Current().N
	v.Attempts[len(v.Attempts)-1] = *fresh
	v.State = jobs.StateOf(v.Record)
}
