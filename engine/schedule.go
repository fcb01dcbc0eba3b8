//go:build !berthnode

package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"berth/internal/queue/schedule"
	"berth/jobs"
	"berth/jobs/store"
)

// ScheduleSubmit submits what a schedule names, under an idempotency key, and returns
// the id of the job.
type ScheduleSubmit func(ctx context.Context, s *jobs.Schedule, key string) (job string, err error)

// Ticked is what was done about a due time of a schedule.
type Ticked struct {
	Schedule string
	Run      jobs.ScheduleRun
	Err      error // it is tried again at the next tick
}

// Tick submits what is due of the schedules in the state directory, each due time once,
// whoever else does the same at the same time, here or on another host: what is to be
// done is decided in a file that is created once, and the job has an idempotency key
// that is made of the schedule's id and the due time.
func (e *Engine) Tick(ctx context.Context, submit ScheduleSubmit) (done []Ticked, err error) {
	dir := schedule.At(e.Store.Home())
	all, err := dir.List()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range all {
		if s.Bad != nil {
			errs = append(errs, fmt.Errorf("schedule %s: %w", s.Name, s.Bad))
			continue
		}
		did, err := e.tick(ctx, s, submit)
		done, errs = append(done, did...), append(errs, err)
		if ctx.Err() != nil {
			return done, errors.Join(append(errs, ctx.Err())...)
		}
	}
	return done, errors.Join(errs...)
}

// RunSchedule submits what a schedule names now, beside its due times.
func (e *Engine) RunSchedule(ctx context.Context, name string, submit ScheduleSubmit) (jobs.ScheduleRun, error) {
	s, err := schedule.At(e.Store.Home()).Find(name)
	if err == nil {
		err = s.Bad
	}
	if err != nil {
		return jobs.ScheduleRun{}, err
	}
	r := e.scheduleRun(e.Now())
	r.Manual, r.Name = true, r.Due.Format("20060102T150405Z")+"-"+rand.Text()[:8]
	if r, err = s.Decide(r); err != nil {
		return r, err
	}
	job, err := submit(ctx, &s.Schedule, s.Key(&r))
	o := jobs.ScheduleOutcome{Job: job, Time: e.Now().UTC()}
	if err != nil {
		o.Error, o.Hint = err.Error(), jobs.HintOf(err)
	}
	return r, errors.Join(err, s.Conclude(&r, o))
}

func (e *Engine) scheduleRun(due time.Time) jobs.ScheduleRun {
	host, _ := os.Hostname()
	return jobs.ScheduleRun{Due: due.UTC().Truncate(time.Second), Decided: e.Now().UTC(), Host: host}
}

func (e *Engine) tick(ctx context.Context, s *schedule.Entry, submit ScheduleSubmit) (done []Ticked, err error) {
	if s.Paused {
		return nil, nil
	}
	late := ""
	if r := s.Open(); r != nil {
		if err := e.beginRun(ctx, s, r, submit); err != nil {
			return []Ticked{{s.Name, *r, err}}, err
		}
		if done = append(done, Ticked{Schedule: s.Name, Run: *r}); r.Outcome.Job != "" {
			late = "the run before it was submitted only now"
		}
	}
	now := e.Now()
	due, missed, ok := s.Due(now)
	if !ok {
		return done, nil
	}
	r := e.scheduleRun(due)
	r.Missed = missed
	if r.Skip = late; late == "" {
		r.Skip, r.Replace = e.overlap(ctx, s)
	}
	if r.Skip == "" {
		r.Number = s.Submitted() + 1
	}
	if r, err = s.Decide(r); err != nil {
		if errors.Is(err, fs.ErrNotExist) { // the schedule was removed meanwhile
			err = nil
		}
		return done, err
	}
	if r.Skip == "" && r.Outcome == nil {
		if err = e.beginRun(ctx, s, &r, submit); err != nil {
			return append(done, Ticked{s.Name, r, err}), err
		}
	}
	return append(done, Ticked{Schedule: s.Name, Run: r}), nil
}

// beginRun submits a run that was decided on. An error is that it is to be tried again;
// one that would come again is the outcome.
func (e *Engine) beginRun(ctx context.Context, s *schedule.Entry, r *jobs.ScheduleRun, submit ScheduleSubmit) error {
	key := s.Key(r)
	job := e.keyed(key)
	if job == "" {
		if r.Replace != "" {
			if err := e.endReplaced(ctx, r.Replace, s.Name); err != nil {
				return fmt.Errorf("schedule %s: cancel job %s, which this run replaces: %w", s.Name, jobs.Short(r.Replace), err)
			}
		}
		var err error
		if job, err = submit(ctx, &s.Schedule, key); err != nil {
			switch jobs.KindOf(err) {
			case jobs.KindUsage, jobs.KindNotFound, jobs.KindConfig, jobs.KindRejected:
			case jobs.KindAuth, jobs.KindInfra, jobs.KindAgain, jobs.KindUnclear, jobs.KindUnknown:
				return fmt.Errorf("schedule %s: %w", s.Name, err)
			}
			return s.Conclude(r, jobs.ScheduleOutcome{Error: err.Error(), Hint: jobs.HintOf(err), Time: e.Now().UTC()})
		}
	}
	return s.Conclude(r, jobs.ScheduleOutcome{Job: job, Time: e.Now().UTC()})
}

// keyed is the job that was submitted under an idempotency key, or "". The task may have
// been edited since.
func (e *Engine) keyed(key string) string {
	k, err := store.LoadKey(e.Store.KeyDir(store.KeyHash(key)))
	if err != nil || k == nil {
		return ""
	}
	if rec, err := e.Store.Load(k.Job); err != nil || !given(rec) {
		return ""
	}
	return k.Job
}

// overlap says what the last run's job means for a new one: why that is left out, or
// which job it replaces.
func (e *Engine) overlap(ctx context.Context, s *schedule.Entry) (skip, replace string) {
	last := s.Last()
	if s.Overlap == jobs.OverlapAllow || last == nil {
		return "", ""
	}
	rec, err := e.Store.Load(last.Outcome.Job)
	if err != nil {
		if store.Missing(err) {
			return "", ""
		}
		return "the job of the last run cannot be read: " + err.Error(), ""
	}
	v := e.Reconcile(ctx, []*jobs.Record{rec})[0]
	switch {
	case v.State.Final():
		return "", ""
	case s.Overlap == jobs.OverlapReplace:
		return "", rec.Spec.ID
	}
	return fmt.Sprintf("job %s of the last run is %s", jobs.Short(rec.Spec.ID), v.State), ""
}

func (e *Engine) endReplaced(ctx context.Context, job, name string) error {
	rec, err := e.Store.Load(job)
	if err != nil {
		if store.Missing(err) {
			return nil
		}
		return err
	}
	return e.Cancel(ctx, e.Reconcile(ctx, []*jobs.Record{rec}), "the schedule "+name)
}
