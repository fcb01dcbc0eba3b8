package engine

import (
	"context"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// askFor bounds what is asked of a scheduler to explain one job.
const askFor = 30 * time.Second

// Explanation is what can be said of a job beyond its state, with what its
// scheduler says when it is asked now.
type Explanation struct {
	// Word is the scheduler's about the current attempt; its Word is "" when it
	// does not know it, or could not be asked.
	Word jobs.Status
	// Differs says that the scheduler calls an ended attempt otherwise than its own
	// record, which counts.
	Differs bool
	// Evidence is what is known of the end of the last attempt that ended.
	Evidence []string
	// Expected is when the scheduler expects to start it; zero is not known.
	Expected time.Time
	// Forecasts are when it would start if it asked for less; the first is as it is.
	Forecasts []jobs.Forecast
	// Trouble is why the scheduler could not be asked, or not about all.
	Trouble error
	Next    []Actor
}

// Explain asks a job's scheduler what it says of it now, in a few questions, and
// changes nothing.
func (e *Engine) Explain(ctx context.Context, v *View) Explanation {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	x := Explanation{Word: v.Status, Trouble: v.AskError}
	a := v.Current()
	if a == nil || a.Submitted == nil {
		x.Next = e.actors(v, x.Word)
		return x
	}
	sc, _, err := e.schedulerOf(&v.Spec)
	if err != nil {
		x.Trouble = err
	} else if x.Word.NativeState == "" && x.Trouble == nil {
		h := a.Submitted.Handle
		got, err := sc.Status(ctx, []jobs.Handle{h})
		x.Word, x.Trouble = got[h.Name], err
	}
	switch {
	case a.Over():
		x.Differs = saysOtherwise(jobs.StateOfAttempt(a), x.Word)
		x.Evidence = jobs.Evidence(a, &x.Word)
	case a.Claim == nil && x.Word.State == jobs.StatePending:
		x.Expected = x.Word.Start
		x.Forecasts, err = e.forecast(ctx, sc, v, x.Word)
		if x.Trouble == nil {
			x.Trouble = err
		}
		if len(x.Forecasts) > 0 && x.Expected.IsZero() {
			x.Expected = x.Forecasts[0].Start
		}
	}
	x.Next = e.actors(v, x.Word)
	return x
}

// forecast tries the current attempt's script in other ways.
func (e *Engine) forecast(ctx context.Context, sc jobs.Scheduler, v *View, word jobs.Status) ([]jobs.Forecast, error) {
	f, ok := sc.(jobs.Cluster)
	if !ok || v.Cancel != nil {
		return nil, nil
	}
	a := v.Current()
	adir := a.Dir
	if v.Spec.Login != nil {
		there, err := store.At(v.Spec.LoginHome)
		if err != nil {
			return nil, err
		}
		adir = store.AttemptDir(there.JobDir(v.Spec.ID), a.N)
	}
	return f.Forecast(ctx, word, store.ScriptPath(adir), a.Info.Change.Resources(v.Spec.Resources), v.Spec.Slurm)
}

// saysOtherwise tells whether a scheduler's final word is another than our own. That a
// runner exits with a code is FAILED to the scheduler, whatever the reason was.
func saysOtherwise(state jobs.State, word jobs.Status) bool {
	if !word.State.Final() || word.State == state {
		return false
	}
	return word.State != jobs.StateFailed || state == jobs.StateCompleted
}
