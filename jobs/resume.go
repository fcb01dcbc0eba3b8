package jobs

import (
	"fmt"
	"time"
)

// Resume is how a job goes on in further attempts when its time is up. It is
// settled at submit; a job without one starts each attempt from the beginning.
type Resume struct {
	// Before is how long before the end of its time the task is stopped, so that
	// what it has done can be kept: at most a quarter of the limit.
	Before time.Duration `json:"before_ns"`
	// Hook runs inside the container at the point from which the next attempt
	// goes on, before the task gets TERM, and at every checkpoint.
	Hook Command `json:"hook,omitzero"`
	// Every is the time between checkpoints while the task runs; 0 is none.
	Every time.Duration `json:"every_ns,omitempty"`
	// Min is how long the command must have run: stopped before, nothing
	// follows, because the next attempt would come no further.
	Min time.Duration `json:"min_ns"`
	// Attempts is how many there may be, those counted that end because their
	// time is up.
	Attempts int `json:"attempts"`
	// CoreHours bounds what all attempts together may use; 0 is no bound.
	CoreHours float64 `json:"core_hours,omitempty"`
}

// Point is where a task has stood: from here another attempt can go on.
type Point struct {
	Attempt int    `json:"attempt"` // number of the attempt that came so far
	ID      string `json:"id"`      // of that attempt
	// Commit is the work in progress, whose parent is the job's base; "" is the
	// base itself. Bundle is the file in the attempt's directory that holds it.
	Commit string `json:"commit,omitempty"`
	Bundle string `json:"bundle,omitempty"`
	// Layer is the overlay that holds the layer, of a task that names none; "" is
	// a new one.
	Layer string `json:"layer,omitempty"`
}

// Checkpoint is checkpoint.json: the last point of an attempt from which
// another can go on. Its runner replaces it.
type Checkpoint struct {
	Version int           `json:"version"`
	Number  int           `json:"number"` // of the attempt's points, from 1
	Stopped bool          `json:"stopped,omitempty"`
	Ran     time.Duration `json:"ran_ns"` // of the command, up to here
	Time    time.Time     `json:"time"`
	Point   Point         `json:"point"`
}

// TakesUp tells whether the attempt after a goes on where a itself came to.
func (a *Attempt) TakesUp() bool {
	d := a.Decision
	return d != nil && d.Verb == VerbRetry && d.Change.Resume != nil && d.Change.Resume.ID == a.Info.ID
}

// from is where the attempt after one that ended for such a reason goes on:
// what the attempt has reached, else where it began itself. A task that failed
// by itself may have failed of what it had reached.
func (r *Record) from(c Class) *Point {
	a := r.Current()
	if r.Spec.Resume != nil && c != ClassTask && a.Checkpoint != nil {
		p := a.Checkpoint.Point
		return &p
	}
	return a.Info.Change.Resume
}

// resumes tells whether an attempt whose time is up is followed by one that
// goes on where it came to.
func (r *Record) resumes(c Class) bool {
	return c == ClassTime && r.Spec.Resume != nil && r.Current().Checkpoint != nil
}

// refuseResume says why a job whose time is up does not go on, or "". spent is
// how many attempts have gone on before, hours what all have used.
func (r *Record) refuseResume(spent int, hours float64) string {
	p := r.Spec.Resume
	ran := r.Current().Checkpoint.Ran
	switch {
	case spent+1 >= p.Attempts:
		return fmt.Sprintf("its time was up, and resume.attempts allows %d", p.Attempts)
	case ran < p.Min:
		return fmt.Sprintf("it was stopped after %s, and less than resume.min (%s) gets it no further", ran.Round(time.Second), p.Min)
	case p.CoreHours > 0 && hours >= p.CoreHours:
		return fmt.Sprintf("it has used %.2f core hours, and resume.core_hours allows %g", hours, p.CoreHours)
	}
	return ""
}

// DefaultBefore is how long before the end of a time limit a task is stopped
// that does not say: a tenth of it, at least a minute and at most ten, and never
// more than a quarter.
func DefaultBefore(limit time.Duration) time.Duration {
	return min(max(limit/10, time.Minute), 10*time.Minute, limit/4)
}

// DefaultMin is how long a task must have run that does not say.
func DefaultMin(limit time.Duration) time.Duration {
	return min(limit/10, time.Minute)
}

// DefaultResumeAttempts is how many attempts there may be for a task that does
// not say.
const DefaultResumeAttempts = 20
