package engine

import (
	"context"
	"os"
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
	// submitting is how long a submission may go on: sbatch waits for minutes
	// while a queue is full, and an unclear answer is looked into after that.
	submitting = 10 * time.Minute
	// entering is how long a job is left alone that is being submitted now.
	entering = 2 * time.Second
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
	ask := map[string][]*View{}
	for i, r := range recs {
		v := &views[i]
		*v = View{Record: r, State: jobs.StateOf(r), AsOf: now}
		a := r.Current()
		if v.State.Final() || a == nil {
			continue
		}
		// A time far in the future is a wrong clock and no sign of life.
		if age := now.Sub(lastSign(a)); a.Claim != nil && age < quiet && age > -quiet {
			continue
		}
		if a.Claim == nil && a.Submitted == nil && now.Sub(a.Info.Created) < entering {
			continue
		}
		ask[r.Spec.Scheduler] = append(ask[r.Spec.Scheduler], v)
	}
	for name, list := range ask {
		e.askOne(ctx, name, list)
	}
	for i := range views {
		e.take(ctx, &views[i])
	}
	return views
}

// lastSign is when a claimed attempt's runner was last heard of. Its first beat
// comes a moment after its claim.
func lastSign(a *jobs.Attempt) time.Time {
	if a.Claim != nil && a.Claim.Time.After(a.Beat) {
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

// askOne asks one scheduler about its jobs.
func (e *Engine) askOne(ctx context.Context, name string, views []*View) {
	sc, err := e.scheduler(name)
	if err != nil {
		for _, v := range views {
			v.unasked(err)
		}
		return
	}
	e.findLost(ctx, sc, views)
	var submitted []*View
	var handles []jobs.Handle
	for _, v := range views {
		if sub := v.Current().Submitted; sub != nil && !v.State.Final() {
			submitted, handles = append(submitted, v), append(handles, sub.Handle)
		}
	}
	if len(handles) == 0 {
		return
	}
	// What is in the answer is true even if the rest could not be had.
	got, err := sc.Status(ctx, handles)
	for i, v := range submitted {
		st, known := got[handles[i].Name]
		if err != nil && !known {
			v.unasked(err)
			continue
		}
		v.Asked, v.Status = known, st
		e.judge(v, known, st)
	}
}

// findLost looks by name for attempts whose submission was never confirmed.
func (e *Engine) findLost(ctx context.Context, sc jobs.Scheduler, views []*View) {
	var names []string
	var lost []*View
	for _, v := range views {
		if a := v.Current(); a.Submitted == nil {
			lost, names = append(lost, v), append(names, a.Info.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	found, err := sc.Find(ctx, names)
	host, _ := os.Hostname()
	for _, v := range lost {
		a := v.Current()
		h, ok := found[a.Info.Name]
		switch {
		case ok:
			sub := jobs.Submitted{Version: 1, Handle: h, Time: e.Now().UTC()}
			if _, err := store.SetSubmitted(a.Dir, sub); err != nil {
				v.Note = "its submission could not be recorded: " + err.Error()
			}
			a.Submitted = &sub
			v.State = jobs.StateOf(v.Record)
		case err != nil:
			v.unasked(err)
		case a.Claim != nil:
			e.judge(v, false, jobs.Status{})
		case v.Spec.Scheduler == jobs.SchedulerLocal && v.Spec.Host != host:
			v.Note = "it was submitted on " + v.Spec.Host + ", whose local queue cannot be asked from here"
		case e.Now().Sub(a.Info.Created) < submitting:
			v.Note = "its submission is not confirmed; it counts as failed at " + a.Info.Created.Add(submitting).Format(time.RFC3339) + " if the scheduler does not know it by then"
		case v.Cancel != nil:
			e.conclude(v, cancelledBefore)
		default:
			e.conclude(v, jobs.Verdict{State: jobs.StateError, Reason: "it was never submitted: the submitting process ended before the scheduler had it", Hint: "submit it again"})
		}
	}
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
		v.Note = "the branch is not in the repository yet: " + err.Error() + "; it is kept in " + bundle(a.Dir)
		return
	}
	t := jobs.Taken{Version: 1, Branch: v.Spec.Workspace.Branch, Commit: res.Commit, Time: e.Now().UTC()}
	if _, err := store.SetTaken(a.Dir, t); err != nil {
		v.Note = "the branch is in the repository, but that could not be recorded: " + err.Error()
		return
	}
	a.Taken = &t
}
