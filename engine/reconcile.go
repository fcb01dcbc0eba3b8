package engine

import (
	"context"
	"os"
	"time"

	"berth/internal/node/notice"
	"berth/internal/sys/failpoint"
	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// Times of judging a job that went silent; see also [quiet] and [silent].
const (
	// settle is how long a scheduler may take to show a job it has accepted.
	settle = 60 * time.Second
	// submitting is how long a submission may go on: Slurm lets one wait for minutes
	// while a queue is full, and an unclear answer is looked into after that.
	submitting = 10 * time.Minute
	// entering is how long a job is left alone that is being submitted now.
	entering = 2 * time.Second
)

// quiet is how old the beat of a running job must be before its scheduler is
// asked about it: two beats and a half. Less than a few seconds would tell more
// of the file server than of the runner.
func quiet(s *jobs.Spec) time.Duration { return max(lease.BeatOf(s.Profile.Beat)*5/2, 5*time.Second) }

// silent is how old a beat must be before an attempt that its scheduler no
// longer knows, or whose node is cut off, counts as ended.
func silent(s *jobs.Spec) time.Duration { return lease.PatienceFor(s.Profile.Beat).Silent }

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
	// Unfollowed is why the next attempt could not be begun; it is to be tried
	// again.
	Unfollowed error
	// Standby is the standby, or the requeued job, that will begin the next attempt;
	// nil is none.
	Standby *jobs.Handle
	// Waits is of a job that has not begun and waits for others.
	Waits jobs.Wait
	// Notices are those of the job that could not be sent, for people, where they were
	// looked for.
	Notices []string
	// NetworkUse is what an attempt that runs has done with its network until now, where that was
	// looked for.
	NetworkUse *jobs.NetworkUse
	// Progress is what the task tells of itself, where that was looked for.
	Progress *jobs.Progress
	// AgentUses is what the agents of attempts have done that left no last word, by the
	// number of the attempt, where that was looked for.
	AgentUses map[int]*jobs.AgentUse
	AsOf      time.Time
}

// Reconcile brings records up to date: each scheduler is asked once, about all
// its jobs that have not ended by their own record and have gone silent. A
// query that fails changes nothing. The jobs that they wait for are brought up
// to date with them.
func (e *Engine) Reconcile(ctx context.Context, recs []*jobs.Record) []View {
	ctx = jobs.WithLook(ctx)
	views := e.reconcile(ctx, append(append([]*jobs.Record{}, recs...), e.forebears(recs)...))
	e.tellWaits(ctx, views)
	e.endOrphans(ctx, views[:len(recs)])
	return views[:len(recs)]
}

func (e *Engine) reconcile(ctx context.Context, recs []*jobs.Record) []View {
	recs, unreached := e.fetch(ctx, recs)
	now := e.Now()
	views := make([]View, len(recs))
	ask := map[string][]*View{}
	var there []*View
	for i, r := range recs {
		v := &views[i]
		*v = View{Record: r, State: jobs.StateOf(r), AsOf: now}
		a := r.Current()
		if a == nil {
			continue
		}
		if err := unreached[i]; err != nil && !v.State.Final() {
			v.unasked(err)
			continue
		}
		switch step := jobs.Next(r, nil, now); {
		case step.Do != jobs.DoNothing && decidedThere(&r.Spec), unguardedThere(r):
			there = append(there, v)
			continue
		case step.Do == jobs.DoAsk && a.Submitted != nil:
			_, where, _ := e.schedulerOf(&r.Spec)
			ask[where] = append(ask[where], v)
			continue
		case step.Do != jobs.DoNothing:
			e.follow(ctx, v, nil)
			continue
		case v.State.Final() || a.Over():
			accepted := a.Decision != nil && a.Decision.Verb == jobs.VerbAccept || r.Spec.Retry == nil && a.Verdict != nil
			if (len(r.Spec.EnvNames) > 0 || len(r.Spec.Credentials) > 0 || r.Spec.External != nil) && accepted {
				store.DropSecrets(r.Dir) // whoever concluded that may have been killed before
			}
			continue
		}
		// A time far in the future is a wrong clock and no sign of life.
		if age, fresh := now.Sub(lastSign(a)), quiet(&r.Spec); a.Claim != nil && age < fresh && age > -fresh {
			continue
		}
		if a.Claim == nil && a.Submitted == nil && now.Sub(a.Info.Created) < entering {
			continue
		}
		_, where, _ := e.schedulerOf(&r.Spec)
		ask[where] = append(ask[where], v)
	}
	for _, list := range ask {
		there = append(there, e.askOne(ctx, list)...)
	}
	e.followThere(ctx, there)
	for i := range views {
		e.take(ctx, &views[i])
		recs[i] = views[i].Record
		if a := recs[i].Current(); e.Aside == nil || a != nil && a.Submitted != nil && now.Sub(a.Submitted.Time) >= guarding {
			e.replenish(ctx, recs[i])
		}
	}
	e.guardLeft(recs)
	notice.Send(ctx, e.Store, e.webhook)
	return views
}

// lastSign is when a claimed attempt's runner was last heard of. Its first beat
// comes a moment after its claim, whose time is by another clock.
func lastSign(a *jobs.Attempt) time.Time {
	if a.Claim != nil && a.Beat.IsZero() {
		return a.Claim.Time
	}
	return a.Beat
}

// unasked notes that the scheduler gave no answer about a job: its state is as
// old as the last thing that was recorded of it.
func (v *View) unasked(err error) {
	v.AskError, v.AsOf = err, v.Spec.Created
	a := v.Current()
	if a.Submitted != nil {
		v.AsOf = a.Submitted.Time
	}
	if t := lastSign(a); t.After(v.AsOf) {
		v.AsOf = t
	}
}

// askOne asks one scheduler about its jobs. It returns those that something
// has to be done about on their cluster.
func (e *Engine) askOne(ctx context.Context, views []*View) (there []*View) {
	sc, _, err := e.schedulerOf(&views[0].Spec)
	if err != nil {
		for _, v := range views {
			v.unasked(err)
		}
		return nil
	}
	there = e.findLost(ctx, sc, views)
	var submitted []*View
	var handles []jobs.Handle
	for _, v := range views {
		if sub := v.Current().Submitted; sub != nil && !v.State.Final() {
			submitted, handles = append(submitted, v), append(handles, sub.Handle)
		}
	}
	if len(handles) == 0 {
		return there
	}
	// A partial answer is valid even if the query failed for the rest.
	got, err := sc.Status(ctx, handles)
	var unwanted []jobs.Handle
	for i, v := range submitted {
		st, known := got[handles[i].Name]
		if known && st.State == jobs.StatePending && v.Cancel != nil {
			unwanted = append(unwanted, handles[i])
		}
		if err != nil && !known {
			v.unasked(err)
			continue
		}
		v.Asked, v.Status = known, st
		if !st.AsOf.IsZero() {
			v.AsOf = st.AsOf
		}
		if decidedThere(&v.Spec) {
			if !known || st.State.Final() {
				there = append(there, v)
			}
			continue
		}
		if !v.Current().Over() {
			e.judge(ctx, v, known, st)
		}
		switch a := v.Current(); {
		case known && a.Over():
			e.follow(ctx, v, &st)
		case a.Over() && a.Exit != nil && e.Now().Sub(a.Exit.Ended) >= settle:
			// It has forgotten the job, and so never says what it did to it.
			e.follow(ctx, v, &jobs.Status{State: jobs.StateCancelled, Reason: "the scheduler does not know it any more"})
		case a.Over():
			e.follow(ctx, v, nil)
		}
	}
	// Whoever wished their end was killed before the scheduler knew of it. One
	// that runs finds the wish by itself.
	if len(unwanted) > 0 {
		_ = sc.Cancel(ctx, unwanted) // the next who looks tries again
	}
	return there
}

// findLost looks by name for attempts whose submission was never confirmed. It
// returns those that are not found and whose cluster concludes what that means.
func (e *Engine) findLost(ctx context.Context, sc jobs.Scheduler, views []*View) (there []*View) {
	var names []string
	var lost []*View
	for _, v := range views {
		if a := v.Current(); a.Submitted == nil {
			lost, names = append(lost, v), append(names, a.Info.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	found, err := sc.Find(ctx, names)
	host, _ := os.Hostname()
	for _, v := range lost {
		a := v.Current()
		h, ok := found[a.Info.Name]
		switch {
		case ok:
			failpoint.Hit("found.begin")
			sub := jobs.Submitted{Version: 1, Handle: h, Time: e.Now().UTC()}
			if _, err := store.SetSubmitted(a.Dir, sub); err != nil {
				v.Note = "its submission could not be recorded: " + err.Error()
			}
			a.Submitted = &sub
			v.State = jobs.StateOf(v.Record)
			if v.Spec.Login == nil {
				e.guardAside(ctx, v.Record)
			}
		case err != nil:
			v.unasked(err)
		case decidedThere(&v.Spec):
			there = append(there, v)
		case a.Claim != nil:
			e.judge(ctx, v, false, jobs.Status{})
		case v.Spec.Scheduler == jobs.SchedulerLocal && v.Spec.Host != host:
			v.Note = "it was submitted on " + v.Spec.Host + ", whose local queue cannot be asked from here"
		case e.Now().Sub(a.Info.Created) < submitting:
			v.Note = e.unconfirmed(a)
		case v.Cancel != nil:
			e.conclude(ctx, v, cancelledBefore)
		default:
			e.conclude(ctx, v, neverSubmitted)
		}
		if v.Current().Over() {
			e.follow(ctx, v, nil)
		}
	}
	return there
}
