package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/node/batch"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// resuming is what an attempt has of a task that can go on in another one.
type resuming struct {
	decision jobs.Decision                                             // made by this process, about what follows
	stopAt   time.Time                                                 // while the command runs; zero is never
	hook     func(ctx context.Context, why string, most time.Duration) // while the container is open; nil is none
	hooking  sync.Mutex                                                // one hook at a time
	working  atomic.Bool                                               // the command runs
	points   int                                                       // that were recorded
	moved    bool                                                      // the layer stands among the overlays
}

// stopTime is when a task is stopped that is to go on in another attempt: so
// long before its own limit or the end of the Slurm job, whichever comes first,
// as its description says. The zero time is never.
func (r *attempt) stopTime(start time.Time) time.Time {
	p := r.spec.Resume
	if p == nil {
		return time.Time{}
	}
	end := start.Add(r.spec.Resources.Time)
	if !r.jobEnd.IsZero() && r.jobEnd.Before(end) {
		end = r.jobEnd
	}
	return end.Add(-p.Before)
}

// timeUp is the reason for that stop.
func (r *attempt) timeUp() why {
	return why{state: jobs.StateTimeout, class: jobs.ClassTime, point: true,
		reason: fmt.Sprintf("it was stopped %s before the end of its time, so that it can go on", r.spec.Resume.Before),
		hint:   "raise [resume] attempts, or [resources] time"}
}

// warned is told that the scheduler has sent the signal that was asked for. It
// may come early (Slurm: a minute), and the job's time may have been changed
// meanwhile: the scheduler is asked when that ends, and the rest is waited for.
func (r *attempt) warned(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, 5*time.Second)
	end := batch.EndNow(asking, r.on, r.batch, r.claim.NativeID)
	cancel()
	if end.IsZero() {
		end = r.jobEnd
	}
	if !end.IsZero() {
		left := time.Until(end.Add(-r.spec.Resume.Before))
		r.event("time_signal", fmt.Sprintf("the scheduler ends the job at %s; the task is stopped %s before",
			end.UTC().Format(time.RFC3339), r.spec.Resume.Before))
		select {
		case <-ctx.Done():
			return
		case <-r.stop.Done():
			return
		case <-time.After(left):
		}
	}
	if r.working.Load() { // else it has ended, or has not begun
		r.stop.set(r.timeUp())
	}
}

// hookTime is a third of the time that is left, and half of what a scheduler in
// a hurry leaves.
func (r *attempt) hookTime(w *why) time.Duration {
	if w.hurry > 0 {
		return max((w.hurry-endsIn)/2, time.Second)
	}
	return max(r.spec.Resume.Before/3, time.Second)
}

// grace is the time between TERM and KILL.
func (r *attempt) grace() time.Duration {
	w := r.stop.Why()
	switch {
	case w == nil || !w.point:
		return r.hurried(r.times.grace)
	case w.hurry > 0: // the hook has used some of it
		return min(r.times.grace, max(w.hurry-endsIn-time.Since(w.at), time.Second))
	}
	return max(r.spec.Resume.Before/3, time.Second)
}

// takeUp makes the work tree of a workspace: at the commit from which the task goes on,
// or at the job's base.
func (r *attempt) takeUp(ctx context.Context, w *jobs.WorkspaceSpec) error {
	git, dir := r.gitOf(w)
	src := sourceOf(w)
	from := r.info.Change.Resume
	if from == nil || from.Commit == "" {
		r.event(store.EventCloning, src.Repo+" at "+src.Base)
		git.Progress = r.cloning(src.Repo, time.Now)
		_, err := git.Prepare(ctx, src, dir)
		return err
	}
	r.event("continuing", fmt.Sprintf("at %s, where attempt %d stood", from.Commit, from.Attempt))
	_, err := git.Continue(ctx, src, dir, filepath.Join(store.AttemptDir(r.jobDir, from.Attempt), filepath.Base(from.Bundle)), from.Commit)
	return err
}

// When and how often it is recorded how far a clone is.
const (
	cloningAfter = time.Second
	cloningEvery = 10 * time.Second
)

// cloning records how far the clone of a repository is that takes more than a second.
func (r *attempt) cloning(repo string, now func() time.Time) func(line string) {
	next := now().Add(cloningAfter)
	return func(line string) {
		if t := now(); !t.Before(next) {
			next = t.Add(cloningEvery)
			r.event(store.EventCloning, repo+": "+line)
		}
	}
}

// throwAway makes the layer of a task that names no overlay: new, or with what
// the attempt had in it from which this one goes on.
func (r *attempt) throwAway(ctx context.Context, home string, spec jobs.OverlaySpec) (*overlay.Layer, error) {
	from := r.info.Change.Resume
	if from == nil || from.Layer == "" {
		return overlay.Temporary(ctx, r.on, r.scratch.Dir, spec)
	}
	r.event("continuing", "with overlay "+from.Layer)
	return overlay.Again(ctx, r.on, filepath.Join(home, "overlays"), from.Layer, r.scratch.Dir, spec, overlay.Image{Path: r.spec.Image,
		Sum: r.spec.ImageSum})
}

// here is the point that the attempt has reached with this commit, and with the
// layer that it has begun with.
func (r *attempt) here(commit, bundle string) jobs.Point {
	p := jobs.Point{Attempt: r.info.Number, ID: r.info.ID}
	if commit != "" {
		p.Commit, p.Bundle = commit, bundle
	}
	if from := r.info.Change.Resume; from != nil {
		p.Layer = from.Layer
	}
	return p
}

// reach records from where the next attempt can go on, when this one was
// stopped for that: the work in progress, which has been collected, and the
// layer. What a scheduler in a hurry leaves no time for is not recorded; then
// the last checkpoint stands.
func (r *attempt) reach(ctx context.Context, out *outcome, rec *jobs.ExitRecord) {
	w := r.stop.Why()
	if w == nil || !w.point || out.started.IsZero() || out.place == nil || r.spec.Workspace != nil && out.result == nil {
		return
	}
	c := jobs.Checkpoint{Version: 1, Number: r.points + 1, Stopped: true, Ran: w.at.Sub(out.started), Time: time.Now().UTC(), Point: r.here("", "")}
	if out.result != nil {
		c.Point = r.here(out.result.Commit, workspace.BundleFile)
	}
	throwAway := out.place.layer != nil && r.spec.Overlay.Name == ""
	if (r.spec.Workspace != nil || !throwAway) && !r.mark(c) {
		return
	}
	if !throwAway || !r.isFollowed(*rec, c) {
		return
	}
	name, err := r.keepAs(ctx, out, rec.State, true)
	if err != nil {
		r.note("the task goes on without what it has changed outside of the workspace: " + err.Error())
		return
	}
	r.moved = true
	c.Point.Layer = name
	r.mark(c)
}

// mark records a point, and tells whether that is done.
func (r *attempt) mark(c jobs.Checkpoint) bool {
	err := r.insist("the point from which the task can go on could not be recorded", 2*time.Second, func() error {
		if !r.stands() {
			return nil
		}
		return store.SetCheckpoint(r.dir, c)
	})
	if err != nil || !r.stands() {
		r.note(fmt.Sprintf("the point from which the task can go on could not be recorded: %v", err))
		return false
	}
	r.points = c.Number
	return true
}

// isFollowed tells whether another attempt follows, or may, if this one ends so
// and there.
func (r *attempt) isFollowed(rec jobs.ExitRecord, c jobs.Checkpoint) bool {
	full, err := store.LoadOf(r.dir)
	if err != nil {
		return false
	}
	a := full.Current()
	if a.Info.ID != r.info.ID || a.Decision != nil {
		return false
	}
	rec.Ended = time.Now().UTC()
	a.Exit, a.Checkpoint = &rec, &c
	step := jobs.Next(full, nil, time.Now())
	return step.Do == jobs.DoAsk || step.Do == jobs.DoDecide && step.Decision.Verb == jobs.VerbRetry
}

// goesOn tells whether the next attempt takes up what this one has reached, as
// far as that is known: when the scheduler has ended it, only that knows why.
func (r *attempt) goesOn(rec *jobs.ExitRecord) bool {
	w := r.stop.Why()
	if w == nil || !w.point || r.points == 0 {
		return false
	}
	if r.decided.Load() {
		from := r.decision.Change.Resume
		return r.decision.Verb == jobs.VerbRetry && from != nil && from.ID == r.info.ID
	}
	return rec.Class == jobs.ClassEnded
}

// forget removes what no further attempt goes on from: the checkpoints before
// the last, and the layer that this attempt began with.
func (r *attempt) forget(ctx context.Context) {
	if r.spec.Resume == nil || !r.decided.Load() {
		return
	}
	var next jobs.Point
	if from := r.decision.Change.Resume; from != nil && r.decision.Verb == jobs.VerbRetry {
		next = *from
	}
	all, _ := filepath.Glob(filepath.Join(r.dir, checkpointBundles))
	for _, path := range all {
		if next.ID != r.info.ID || filepath.Base(path) != next.Bundle {
			_ = os.Remove(path)
		}
	}
	if from := r.info.Change.Resume; from != nil && from.Layer != "" && from.Layer != next.Layer {
		if err := overlay.Drop(ctx, r.on, filepath.Join(r.stateDir(), "overlays"), from.Layer, r.spec.ID); err != nil {
			r.note("overlay " + from.Layer + " is not needed any more and could not be removed: " + err.Error())
		}
	}
}

// callClient runs a verb of berth for this job's state directory.
func (r *attempt) callClient(ctx context.Context, words ...string) error {
	if r.client == "" {
		return errors.New("no program for that was given")
	}
	_, err := run.Output(ctx, r.on, jobs.Cmd{Argv: append([]string{r.client}, words...),
		Env: append(slices.Clone(os.Environ()), "BERTH_HOME="+r.stateDir())})
	return err
}

// stateDir is the state directory.
func (r *attempt) stateDir() string { return store.HomeOf(r.jobDir) }
