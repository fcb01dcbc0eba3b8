package engine

import (
	"context"
	"slices"
	"strings"

	"berth/jobs"
	"berth/jobs/store"
)

// settleAfter finds the jobs that a task waits for. It drops conditions that are
// met already, and refuses those that can never be met. With dry it does not query
// the state of the jobs.
func (e *Engine) settleAfter(ctx context.Context, s *jobs.Spec, words []string, dry bool) error {
	if len(words) == 0 {
		return nil
	}
	list, err := jobs.ParseAfter(words)
	if err != nil {
		return &jobs.Error{Msg: "after", Err: err}
	}
	names := make([]string, len(list))
	for i, a := range list {
		names[i] = a.Job
	}
	parents, err := e.Store.FindAll(names)
	if err != nil {
		return err
	}
	needs := map[string]jobs.Need{}
	for i, p := range parents {
		a := jobs.After{Job: p.Spec.ID, Need: list[i].Need}
		if before, twice := needs[a.Job]; twice && before != a.Need {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "after: job " + a.String() + " is to end as " + string(before) + ", too",
				Hint: "name it once"}
		} else if twice {
			continue
		}
		needs[a.Job] = a.Need
		if err := sameLedger(s, &p.Spec); err != nil {
			return err
		}
		s.After = append(s.After, a)
	}
	if dry {
		behindOthers(s)
		return nil
	}
	e.Reconcile(ctx, parents)
	var open []jobs.After
	for _, a := range s.After {
		w, _, err := e.Store.Wait([]jobs.After{a})
		switch {
		case err != nil:
			return err
		case w.Never != "":
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "after: " + w.Never,
				Hint: "berth explain " + jobs.Short(a.Job) + " tells why; nothing was submitted"}
		case len(w.For) > 0:
			open = append(open, a)
		default:
			s.Notes = append(s.Notes, "job "+a.String()+" has ended already, and is not waited for")
		}
	}
	s.After = open
	behindOthers(s)
	return nil
}

// sameLedger refuses to wait for a job whose record is in another ledger than that
// of the waiting job, which could not see how it ends.
func sameLedger(s, parent *jobs.Spec) error {
	short := jobs.Short(parent.ID)
	refuse := func(why string) error {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "after: job " + short + " " + why,
			Hint: "wait for it here, and submit this one then: berth wait " + short}
	}
	switch here, there := s.Login, parent.Login; {
	case here == nil && there == nil:
		return nil
	case there == nil:
		return refuse("is not behind the login host " + here.Host + ", which is not told how it ended")
	case here == nil:
		return refuse("is behind the login host " + there.Host + ", and what runs here is not told how it ended")
	case loginKey(*here) != loginKey(*there) || s.LoginHome != parent.LoginHome:
		return refuse("is behind the login host " + there.Host + " with the state directory " + parent.LoginHome +
			", and this one is to be behind " + here.Host + " with " + s.LoginHome)
	}
	return nil
}

// behindOthers gives a job that waits for others a retry policy, so that it is
// submitted again if it started too early, even if the task is never retried.
func behindOthers(s *jobs.Spec) {
	if s.Retry == nil && len(s.After) > 0 {
		s.Retry = &jobs.Retry{}
	}
}

// behind returns the jobs of the same scheduler on which a job depends, and whether
// these are all that it waits for. With ask the state of the jobs that it waits for
// is refreshed first; a job that the scheduler does not know is left out.
func (e *Engine) behind(ctx context.Context, s *jobs.Spec, ask bool) (handles []jobs.Handle, all bool, err error) {
	if len(s.After) == 0 {
		return nil, true, nil
	}
	w, records, err := e.Store.Wait(s.After)
	if err != nil || w.Over() {
		return nil, true, err
	}
	var open []*jobs.Record
	for _, a := range w.For {
		open = append(open, records[a.Job])
	}
	views := make([]View, len(open))
	for i, r := range open {
		views[i] = View{Record: r, State: jobs.StateOf(r)}
	}
	if ask {
		views = e.Reconcile(ctx, open)
	}
	all = true
	for _, v := range views {
		a := v.Current()
		switch {
		case ask && v.State.Final():
		case a == nil || a.Submitted == nil || a.Over() || v.Spec.Scheduler != s.Scheduler ||
			a.Submitted.Handle.Cluster != "" || v.Asked && v.Status.State.Final():
			all = false
		default:
			handles = append(handles, a.Submitted.Handle)
		}
	}
	return handles, all, nil
}

// hold puts into a launch what its scheduler holds it back by.
func (e *Engine) hold(ctx context.Context, s *jobs.Spec, l *jobs.Launch, ask bool) (err error) {
	l.Behind, _, err = e.behind(ctx, s, ask)
	return err
}

// forebears are the jobs that these wait for, and the ones that those wait for,
// as far as they have not ended: how they stand is what the others hang on.
func (e *Engine) forebears(recs []*jobs.Record) []*jobs.Record {
	known := map[string]bool{}
	for _, r := range recs {
		known[r.Spec.ID] = true
	}
	var out []*jobs.Record
	for list := recs; len(list) > 0; {
		var next []*jobs.Record
		for _, r := range list {
			if len(r.Spec.After) == 0 || !Waits(r) {
				continue
			}
			for _, a := range r.Spec.After {
				if known[a.Job] {
					continue
				}
				known[a.Job] = true
				if p, err := e.Store.Load(a.Job); err == nil && !jobs.StateOf(p).Final() {
					next = append(next, p)
				}
			}
		}
		out = append(out, next...)
		list = next
	}
	return out
}

// Waits reports whether a job has not begun, or waits for its next attempt.
func Waits(r *jobs.Record) bool {
	a := r.Current()
	return !jobs.StateOf(r).Final() && (a == nil || a.Claim == nil || a.Over())
}

// tellWaits records in each view for which jobs it still waits, and ends the jobs
// whose condition can never be met.
func (e *Engine) tellWaits(ctx context.Context, views []View) {
	seen := map[string]*jobs.Record{}
	order := make([]*View, len(views))
	for i := range views {
		order[i], seen[views[i].Spec.ID] = &views[i], views[i].Record
	}
	// Ids have the order of time: what a job waits for comes before it.
	slices.SortFunc(order, func(a, b *View) int { return strings.Compare(a.Spec.ID, b.Spec.ID) })
	for _, v := range order {
		if len(v.Spec.After) == 0 || !Waits(v.Record) || v.Cancel != nil {
			continue
		}
		if err := e.read(v.Spec.After, seen); err != nil {
			v.Note = "a job that it waits for cannot be read: " + err.Error()
			continue
		}
		if v.Waits = jobs.WaitFor(v.Spec.After, seen); v.Waits.Never != "" {
			e.never(ctx, v)
			seen[v.Spec.ID] = v.Record
		}
	}
}

// read adds the records that are lacking; nil is that there is none.
func (e *Engine) read(list []jobs.After, seen map[string]*jobs.Record) error {
	for _, a := range list {
		if _, ok := seen[a.Job]; ok {
			continue
		}
		r, err := e.Store.Load(a.Job)
		if err != nil && !store.Missing(err) {
			return err
		}
		seen[a.Job] = r
	}
	return nil
}

// never ends a job that has not begun and whose condition can never be met. A
// runner that begins all the same comes to the same end.
func (e *Engine) never(ctx context.Context, v *View) {
	a := v.Current()
	if a == nil || a.Over() || decidedThere(&v.Spec) {
		return
	}
	e.conclude(ctx, v, jobs.Verdict{State: jobs.StateError, Class: jobs.ClassPolicy, Code: jobs.CodeTaskFailed, Reason: v.Waits.Never,
		Hint: "berth explain " + jobs.Short(v.Waits.Because) + " tells why"})
	if a = v.Current(); a.Verdict == nil {
		return
	}
	e.follow(ctx, v, nil)
	if sc, _, err := e.schedulerOf(&v.Spec); err == nil && a.Submitted != nil {
		if err := sc.Cancel(ctx, []jobs.Handle{a.Submitted.Handle}); err != nil {
			v.Note = "it has ended, and its place in the queue could not be taken back: " + err.Error() // it leaves by itself when its turn comes
		}
	}
}

// Dependents are the jobs that have not ended and wait for one of these, or would
// look how it has ended should they have to begin again.
func (e *Engine) Dependents(recs []*jobs.Record) (map[string]*jobs.Record, error) {
	asked := map[string]bool{}
	for _, r := range recs {
		asked[r.Spec.ID] = true
	}
	all, err := e.Store.ListOpen()
	out := map[string]*jobs.Record{}
	for _, r := range all {
		for _, a := range r.Spec.After {
			if asked[a.Job] && !asked[r.Spec.ID] && (Waits(r) || r.Spec.Retry.Again() || r.Spec.Resume != nil) {
				out[a.Job] = r
			}
		}
	}
	return out, err
}
