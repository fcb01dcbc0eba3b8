package engine

import (
	"context"
	"time"

	"berth/internal/config/sitefile"
	"berth/internal/sys/failpoint"
	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
)

// Render returns the job script of a planned task. It asks no scheduler and
// writes nothing; the directory is the one a submission would use.
func (e *Engine) Render(ctx context.Context, s *jobs.Spec) (string, error) {
	sc, _, err := e.schedulerOf(s)
	if err != nil {
		return "", err
	}
	info, err := attemptInfo(s, s.ID, e.Now())
	if err != nil {
		return "", err
	}
	adir, err := e.attemptDir(s, 1)
	if err != nil {
		return "", err
	}
	at, err := e.selectSite(ctx, s)
	if err != nil {
		return "", err
	}
	l, err := e.launch(s, info, adir, at)
	if err == nil {
		err = e.hold(ctx, s, &l, false)
	}
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
	if err := e.fewEnough(); err != nil {
		return nil, err
	}
	info, err := attemptInfo(s, "", e.Now())
	if err != nil {
		return nil, err
	}
	o, err := e.prepare(ctx, s, t, info)
	if err != nil {
		return nil, err
	}
	if o.script, err = o.sc.Render(o.launch); err != nil {
		return nil, err
	}
	o.Script = func(string) (string, error) { return o.script, nil }
	here := o.New
	if o.site != nil {
		here.Secrets = nil // they are wanted there alone
	}
	failpoint.Hit("submit.planned")
	rec, err := e.Store.Create(here)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("submit.recorded")
	return e.submit(ctx, o, rec)
}

// fewEnough refuses one more job where the site bounds how many of a user's have not
// ended. They are counted by their records alone: no scheduler is asked.
func (e *Engine) fewEnough() error {
	site, err := sitefile.Read()
	if err != nil || site == nil || site.Limits.Submitted == 0 {
		return err
	}
	recs, err := e.Store.ListOpen()
	if recs == nil && err != nil {
		return err
	}
	have := 0
	for _, r := range recs {
		if !jobs.StateOf(r).Final() {
			have++
		}
	}
	return site.Submitted(have)
}

// prepared is a job on its way to a scheduler.
type prepared struct {
	store.New
	sc     jobs.Scheduler
	site   site // nil is here
	launch jobs.Launch
	script string
}

// prepare settles what a scheduler is asked to start for the first attempt.
func (e *Engine) prepare(ctx context.Context, s *jobs.Spec, t jobs.Task, info jobs.AttemptInfo) (*prepared, error) {
	o := &prepared{New: store.New{Spec: *s, Attempt: info, Task: t.Source}}
	var err error
	if o.sc, _, err = e.schedulerOf(s); err != nil {
		return nil, err
	}
	if o.site, err = e.site(s); err != nil {
		return nil, err
	}
	at, err := e.selectSite(ctx, s)
	if err != nil {
		return nil, err
	}
	adir, err := e.attemptDir(s, 1)
	if err != nil {
		return nil, err
	}
	if t.Prompt != "" {
		o.Prompt = []byte(t.Prompt)
	}
	for _, name := range s.EnvNames {
		v, _ := e.Getenv(name)
		o.Secrets = append(o.Secrets, name+"="+v)
	}
	keys, err := e.credentialKeys(ctx, s.Credentials, t.Credentials)
	if err != nil {
		return nil, err
	}
	o.Secrets = append(o.Secrets, keys...)
	if p := e.program(s.External, s.Backend); p != nil {
		o.Secrets = append(o.Secrets, p.Keys()...) // for the program alone, where the attempt begins
	}
	if o.launch, err = e.launch(s, info, adir, at); err != nil {
		return nil, err
	}
	return o, e.hold(ctx, s, &o.launch, true)
}

// submit hands the first attempt of a recorded job to its scheduler.
func (e *Engine) submit(ctx context.Context, o *prepared, rec *jobs.Record) (*jobs.Record, error) {
	s, a := &rec.Spec, rec.Current()
	if err := e.Store.AwaitNotices(s); err != nil {
		return nil, e.withdraw(ctx, nil, rec, err)
	}
	if o.site != nil {
		if err := e.submitAt(ctx, o.site, rec, o.New, o.script); err != nil {
			return nil, err
		}
	}
	h, err := o.sc.Submit(ctx, o.launch, store.ScriptPath(o.launch.Dir))
	failpoint.Hit("submit.answered")
	if unclear(err) {
		h, err = e.resolveUnclear(ctx, o.sc, o.launch.Name, err)
	}
	switch {
	case err == nil:
	case unclear(err):
		return rec, &jobs.Error{Kind: jobs.KindUnclear, Msg: "job " + jobs.Short(s.ID) + " may or may not have been submitted", Err: err,
			Hint: "berth status " + jobs.Short(s.ID) + " finds out; do not submit it again before"}
	default: // the scheduler has nothing
		failpoint.Hit("submit.refused")
		return nil, e.withdraw(ctx, o.site, rec, err)
	}
	sub := jobs.Submitted{Version: 1, Handle: h, Time: e.Now().UTC()}
	if _, err := store.SetSubmitted(a.Dir, sub); err != nil {
		// The scheduler has it and the intent is recorded: status finds it by name.
		return rec, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the submission of job " + jobs.Short(s.ID), Err: err,
			Hint: "the job was submitted; berth status " + jobs.Short(s.ID)}
	}
	failpoint.Hit("submit.noted")
	a.Submitted = &sub
	e.guardAside(ctx, rec)
	return rec, nil
}

// unclear reports whether the scheduler may have the job despite the error. An
// unclassified error does not rule that out.
func unclear(err error) bool {
	kind := jobs.KindOf(err)
	return err != nil && (kind == jobs.KindUnclear || kind == jobs.KindUnknown)
}

// unclearFor is how long a scheduler must answer "not known" before an unclear
// submission counts as not made: three times Slurm's message timeout
// (slurm.conf(5), MessageTimeout, 10 s by default). A request that waits in
// front of a stopped controller is still carried out when it goes on, so the
// time counts from the first answer.
const unclearFor = 30 * time.Second

// resolveUnclear looks a submission up by name until it is found, or until the
// scheduler has answered "not known" for long enough. If the scheduler cannot
// be asked for as long, the matter stays unclear.
func (e *Engine) resolveUnclear(ctx context.Context, sc jobs.Scheduler, name string, cause error) (jobs.Handle, error) {
	failpoint.Hit("submit.unclear")
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
			return jobs.Handle{}, &jobs.Error{Kind: jobs.KindAgain, Msg: "the scheduler did not take the job", Err: cause,
				Hint: "nothing was submitted; try again"}
		}
		if e.Sleep(ctx, pause) != nil {
			return jobs.Handle{}, stays
		}
	}
}
