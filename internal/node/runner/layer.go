package runner

import (
	"context"

	"berth/jobs"
	"berth/jobs/store"
)

// promote makes the changes of a successful task part of its overlay, where the
// task worked on a snapshot. After any other end (the task failed, was killed, ran
// out of memory, time or space, was cancelled, or one of its checks failed) the
// overlay stays as it was, unless the task was stopped to go on in another attempt.
// The container has closed before.
func (r *attempt) promote(ctx context.Context, out *outcome, rec *jobs.ExitRecord) {
	if out.place == nil || out.place.layer == nil || !out.place.layer.Snapshotted() {
		return
	}
	if rec.State != jobs.StateCompleted {
		if !r.goesOn(rec) {
			return
		}
		if err := r.keepLayer(ctx, out); err != nil {
			r.note("the task goes on without what it has changed outside of the workspace: " + err.Error())
		}
		return
	}
	if !r.accepted() { // another attempt may be accepted, and begins with the overlay as it was
		rec.State, rec.Code = jobs.StateError, jobs.CodeInfra
		rec.Reason = "it succeeded, but that could not be recorded in time, " +
			"so that what it has changed in overlay " + r.spec.Overlay.Name + " is not kept"
		rec.Hint = "is there space left? df -h " + r.jobDir
		return
	}
	if err := r.keepLayer(ctx, out); err != nil {
		rec.State, rec.Reason, rec.Hint = jobs.StateError, err.Error(), jobs.HintOf(err)
		rec.Code = jobs.CodeOf(err)
		return
	}
	if r.spec.Retry == nil {
		return // there is no decision that another process could finish
	}
	if err := store.SetPromoted(r.dir, *r.use); err != nil {
		r.log.Warn("that the overlay has what the task has changed could not be recorded before the end", "err", err)
	}
}

// keepLayer promotes the layer. It is for every point at which the task's files
// are as they should be: its success, and where it stops to be resumed.
func (r *attempt) keepLayer(ctx context.Context, out *outcome) error {
	r.event("promoting", "overlay "+r.spec.Overlay.Name)
	err := out.place.layer.Promote(ctx, func() bool { return r.stands() && !store.HasExit(r.dir) })
	r.use.Promoted = err == nil
	return err
}
