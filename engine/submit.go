package engine

import (
	"context"
	"errors"
	"time"

	"berth/internal/ids"
	"berth/jobs"
	"berth/jobs/store"
)

// Render returns the job script of a planned task. It asks no scheduler and
// writes nothing; node and the directory are the ones a submission would use.
func (e *Engine) Render(s *jobs.Spec, node string) (string, error) {
	sc, err := e.scheduler(s.Scheduler)
	if err != nil {
		return "", err
	}
	info, err := attemptInfo(s, s.ID, e.Now())
	if err != nil {
		return "", err
	}
	l, err := e.launch(s, info, store.AttemptDir(e.Store.JobDir(s.ID), 1), node)
	if err != nil {
		return "", err
	}
	return sc.Render(l)
}

func attemptInfo(s *jobs.Spec, id string, now time.Time) (jobs.AttemptInfo, error) {
	if id == "" {
		var err error
		if id, err = ids.New(); err != nil {
			return jobs.AttemptInfo{}, err
		}
	}
	return jobs.AttemptInfo{Version: 1, ID: id, Number: 1, Name: jobs.JobName(s.Slug, id), Created: now.UTC()}, nil
}

// Submit records a planned task and hands it to its scheduler. The record is
// on the disk before the scheduler hears of it. When the scheduler refuses,
// the record is taken away again; when its answer is unclear, the job is
// looked up by its name, and the record stays whatever comes of that.
func (e *Engine) Submit(ctx context.Context, s *jobs.Spec, t jobs.Task) (*jobs.Record, error) {
	sc, err := e.scheduler(s.Scheduler)
	if err != nil {
		return nil, err
	}
	node, err := e.Node()
	if err != nil {
		return nil, err
	}
	info, err := attemptInfo(s, "", e.Now())
	if err != nil {
		return nil, err
	}
	n := store.New{Spec: *s, Attempt: info, Task: t.Source}
	if t.Prompt != "" {
		n.Prompt = []byte(t.Prompt)
	}
	for _, name := range s.EnvNames {
		v, _ := e.Getenv(name)
		n.Secrets = append(n.Secrets, name+"="+v)
	}
	var l jobs.Launch
	n.Script = func(adir string) (string, error) {
		if l, err = e.launch(s, info, adir, node); err != nil {
			return "", err
		}
		return sc.Render(l)
	}
	rec, err := e.Store.Create(n)
	if err != nil {
		return nil, err
	}
	a := rec.Current()
	h, err := sc.Submit(ctx, l, store.ScriptPath(a.Dir))
	if unclear(err) {
		h, err = e.resolveUnclear(ctx, sc, info.Name, err)
	}
	switch {
	case err == nil:
	case unclear(err):
		return rec, &jobs.Error{Kind: jobs.KindUnclear, Msg: "job " + jobs.Short(s.ID) + " may or may not have been submitted", Err: err,
			Hint: "berth status " + jobs.Short(s.ID) + " finds out; do not submit it again before"}
	default: // the scheduler has nothing
		if rerr := e.Store.Remove(rec); rerr != nil {
			return nil, errors.Join(err, rerr)
		}
		return nil, err
	}
	sub := jobs.Submitted{Version: 1, Handle: h, Time: e.Now().UTC()}
	if _, err := store.SetSubmitted(a.Dir, sub); err != nil {
		// The scheduler has it and the intent is recorded: status finds it by name.
		return rec, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the submission of job " + jobs.Short(s.ID), Err: err, Hint: "the job was submitted; berth status " + jobs.Short(s.ID)}
	}
	a.Submitted = &sub
	return rec, nil
}

// unclear tells an error after which the scheduler may have the job. What
// nobody has classified says nothing about that either.
func unclear(err error) bool {
	kind := jobs.KindOf(err)
	return err != nil && (kind == jobs.KindUnclear || kind == jobs.KindUnknown)
}

// unclearFor is how long a scheduler must answer "not known" before an unclear
// submission counts as not made: three times Slurm's message timeout
// (slurm.conf(5), MessageTimeout, 10 s by default). A request that waits in
// front of a stopped slurmctld is still carried out when it goes on, so the
// time counts from the first answer.
const unclearFor = 30 * time.Second

// resolveUnclear looks a submission up by name until it is found, or until the
// scheduler has answered "not known" for long enough. If the scheduler cannot
// be asked for as long, the matter stays unclear.
func (e *Engine) resolveUnclear(ctx context.Context, sc jobs.Scheduler, name string, cause error) (jobs.Handle, error) {
	stays := &jobs.Error{Kind: jobs.KindUnclear, Err: cause}
	start := e.Now()
	var unknownSince time.Time
	for pause := time.Second; ; pause = min(2*pause, 8*time.Second) {
		found, err := sc.Find(ctx, []string{name})
		if h, ok := found[name]; err == nil && ok {
			return h, nil
		}
		now := e.Now()
		switch {
		case err != nil && now.Sub(start) >= unclearFor:
			return jobs.Handle{}, stays
		case err != nil:
			unknownSince = time.Time{}
		case unknownSince.IsZero():
			unknownSince = now
		case now.Sub(unknownSince) >= unclearFor:
			return jobs.Handle{}, &jobs.Error{Kind: jobs.KindAgain, Msg: "the scheduler did not take the job", Err: cause, Hint: "nothing was submitted; try again"}
		}
		if e.Sleep(ctx, pause) != nil {
			return jobs.Handle{}, stays
		}
	}
}
