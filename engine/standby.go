package engine

import (
	"context"
	"slices"
	"time"

	"berth/internal/node/batch"
	"berth/jobs"
	"berth/jobs/store"
)

const (
	// mostStandbys is how many standbys are submitted one behind the other: places
	// in a queue that others may want, too.
	mostStandbys = 3
	// refusedFor is how long after standbys were refused they are asked for again.
	refusedFor = time.Minute
)

// replenish submits standbys for a job whose nodes may not submit its next
// attempt, as many as may be needed. A failure is shown with the job.
func (e *Engine) replenish(ctx context.Context, r *jobs.Record) {
	a := r.Current()
	if !r.Spec.Profile.NodesMute || a == nil || a.Submitted == nil || a.Standby != nil || a.Over() || r.Cancel != nil ||
		!r.Spec.FollowedOnCluster() || e.mute(&r.Spec) {
		return
	}
	if u := a.Unfollowed; u != nil && e.Now().Sub(u.Time) < refusedFor {
		return
	}
	n := min(r.AttemptsLeft(), mostStandbys) - len(r.Waiting())
	if n <= 0 {
		return
	}
	if err := e.standbys(ctx, r, n); err != nil {
		e.mark(a, "no job could be submitted that goes on with it", err, "berth follow "+jobs.Short(r.Spec.ID)+" tries again")
		return
	}
	if a.Unfollowed != nil {
		store.DropUnfollowed(a.Dir)
		a.Unfollowed = nil
	}
}

// mute tells whether nothing can be submitted from here: in a job, on a site
// whose nodes may not.
func (e *Engine) mute(s *jobs.Spec) bool {
	_, job := batch.Here(func(name string) string { v, _ := e.Getenv(name); return v })
	return job.ID != "" && s.Profile.NodesMute
}

// mute is the error of that.
func mute(s *jobs.Spec) error {
	return &jobs.Error{Kind: jobs.KindInfra,
		Msg:  "the profile " + s.Profile.Name + " says that nodes may not submit jobs, and no standby was submitted that fits",
		Hint: "where you submit: berth status " + jobs.Short(s.ID)}
}

// standbys submits n standbys, each behind the one before it and the first behind
// the last that waits, or behind the attempt's own job. It first looks for jobs of
// the same names from an earlier call. A surplus standby ends as soon as it starts.
func (e *Engine) standbys(ctx context.Context, r *jobs.Record, n int) error {
	s, a := r.Spec, r.Current()
	if slices.Contains(s.Profile.Forbid, "dependency") {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "the profile " + s.Profile.Name + " forbids --dependency, without which no standby can be submitted",
			Hint: "berth follow from a crontab"}
	}
	sc, _, err := e.schedulerOf(&s)
	if err != nil {
		return err
	}
	at, err := e.selectSite(ctx, &s)
	if err != nil {
		return err
	}
	var names []string
	for i := 1; i <= n; i++ {
		names = append(names, jobs.StandbyName(a.Info.ID, i))
	}
	found, err := sc.Find(ctx, names)
	if err != nil {
		return err
	}
	behind := a.Submitted.Handle
	if rest := r.Waiting(); len(rest) > 0 {
		behind = rest[len(rest)-1]
	}
	have := jobs.Standby{Version: 1}
	for _, name := range names {
		h, ok := found[name]
		if !ok {
			if h, err = e.standby(ctx, sc, r, at, name, behind); err != nil {
				break
			}
		}
		have.Handles = append(have.Handles, h)
		behind = h
	}
	if len(have.Handles) == 0 {
		return err // fewer than were wished are better than none
	}
	have.Time = e.Now().UTC()
	won, err := store.SetStandby(a.Dir, have)
	if err != nil {
		return err // they are found by their names
	}
	if !won { // another process recorded the same standbys
		fresh, err := store.LoadAttempt(a.Dir)
		if err != nil {
			return err
		}
		a.Standby = fresh.Standby
		return nil
	}
	a.Standby = &have
	if store.Cancelled(r.Dir) { // meanwhile, by a process that did not see them
		return sc.Cancel(ctx, have.Handles)
	}
	return nil
}

// standby submits one standby behind the job behind.
func (e *Engine) standby(ctx context.Context, sc jobs.Scheduler, r *jobs.Record, at selected, name string, behind jobs.Handle) (jobs.Handle, error) {
	a := r.Current()
	info := a.Info
	info.Name, info.Change.NotBefore = name, time.Time{}
	at.ahead = true
	l, err := e.again(r.Spec, info, a.Dir, at, 0)
	if err != nil {
		return jobs.Handle{}, err
	}
	l.Log = store.FileStandbyLog
	l.Behind = append(slices.Clone(l.Behind), behind)
	l.Comment = append(l.Comment, "standby: the next attempt after this one, if there is to be one; else it ends at once")
	script, err := sc.Render(l)
	if err != nil {
		return jobs.Handle{}, err
	}
	file, err := store.WriteStandby(a.Dir, script)
	if err != nil {
		return jobs.Handle{}, err
	}
	h, err := sc.Submit(ctx, l, file)
	if unclear(err) {
		// One that is there without being known here ends by itself.
		if again, ferr := sc.Find(ctx, []string{name}); ferr == nil && again[name].NativeID != "" {
			return again[name], nil
		}
	}
	return h, err
}

// standbyCame says whether the job that will begin the next attempt was requeued
// or is a standby.
func (v *View) standbyCame(d jobs.Decision) string {
	if own := v.RequeuedHandle(d); own != nil && own.NativeID == v.Standby.NativeID {
		return "requeued"
	}
	return "submitted as a standby"
}

// leave reports whether a job that Slurm already has will begin the next attempt: a
// standby with the same request, or the attempt's own job if it was requeued and its
// runner is about to begin the next attempt in it.
func (e *Engine) leave(ctx context.Context, v *View, d jobs.Decision) (bool, error) {
	v.Standby = nil
	if v.Cancel != nil {
		return false, nil
	}
	var fit []jobs.Handle
	if own := v.RequeuedHandle(d); own != nil {
		fit = append(fit, *own)
	}
	for _, h := range v.Waiting() {
		for i := range v.Attempts {
			if a := &v.Attempts[i]; a.N == v.StandbyFor(h) && a.Info.Change.SameRequest(d.Change) {
				fit = append(fit, h)
			}
		}
	}
	if len(fit) > 0 {
		sc, _, err := e.schedulerOf(&v.Spec)
		if err != nil {
			return false, err
		}
		got, err := sc.Status(ctx, fit)
		for _, h := range fit {
			if st, ok := got[h.Name]; ok && !st.State.Final() {
				v.Standby = &h
				v.Note = "it goes on in job " + h.NativeID + " of " + v.Spec.Scheduler + ", which was " + v.standbyCame(d)
				return true, nil
			}
		}
		if err != nil {
			return false, err
		}
	}
	if e.mute(&v.Spec) {
		return false, mute(&v.Spec)
	}
	return false, nil
}
