package schedule

import (
	"time"

	"berth/jobs"
)

// settled is the last due time up to now that needs no look: it was decided on, or it
// was before the schedule was made or resumed. A decision on a later time does not
// count: a clock that was put forward, and back again, silences no schedule.
func (e *Entry) settled(now time.Time) time.Time {
	last := e.Since
	for _, r := range e.Runs {
		if !r.Manual && !r.Due.After(now) && r.Due.After(last) {
			last = r.Due
		}
	}
	return last
}

// decided reports whether there is a run of a due time, or was one that is forgotten.
func (e *Entry) decided(due time.Time) bool {
	if len(e.Runs) >= mostRuns-1 && due.Before(e.Runs[0].Due) { // a clock was put back
		return true
	}
	for _, r := range e.Runs {
		if !r.Manual && r.Due.Equal(due) {
			return true
		}
	}
	return false
}

// Submitted counts the runs that were started, those of people left out.
func (e *Entry) Submitted() (n int) {
	for _, r := range e.Runs {
		n = max(n, r.Number)
	}
	return n
}

// Due returns the last due time that has passed and that nothing was decided on, and how
// many have passed before it: these are not made up for, one by one. False is none.
func (e *Entry) Due(now time.Time) (due time.Time, missed int, ok bool) {
	if e.Bad != nil || e.Paused || e.Over() {
		return time.Time{}, 0, false
	}
	from := e.settled(now)
	last := e.latest(from, now)
	if last.IsZero() || e.decided(last) {
		return time.Time{}, 0, false
	}
	for t := e.times.Next(from); missed < mostMissed && !t.IsZero() && t.Before(last); t = e.times.Next(t) {
		missed++
	}
	return last.UTC(), missed, true
}

// latest is the last due time after from and up to now, or zero. It looks back over
// longer and longer spans, so that a minute's schedule after a year costs little.
func (e *Entry) latest(from, now time.Time) (last time.Time) {
	for span := 2 * time.Hour; last.IsZero(); span *= 24 {
		begin := now.Add(-span)
		whole := !begin.After(from) || span > 10*365*24*time.Hour
		if begin.Before(from) {
			begin = from
		}
		for t := e.times.Next(begin.Add(-3 * time.Hour)); !t.IsZero() && !t.After(now); t = e.times.Next(t) { // clocks that were set in these hours
			if t.After(begin) {
				last = t
			}
		}
		if whole {
			break
		}
	}
	return last
}

// Over reports whether a schedule is not due any more.
func (e *Entry) Over() bool {
	if e.Repeat > 0 && e.Submitted() >= e.Repeat {
		return true
	}
	return !e.At.IsZero() && len(e.Runs) > 0 && e.decided(e.At)
}

// Next is when it is due the next time after now; zero is never.
func (e *Entry) Next(now time.Time) time.Time {
	if e.Bad != nil || e.Paused || e.Over() {
		return time.Time{}
	}
	if due, _, ok := e.Due(now); ok {
		return due
	}
	return e.After(now)
}

// After is the first due time after t; zero is none.
func (e *Entry) After(t time.Time) time.Time {
	for t = e.times.Next(t); !t.IsZero() && e.decided(t.UTC()); t = e.times.Next(t) {
	}
	return t.UTC()
}

// Last returns the newest run that has a job, or nil.
func (e *Entry) Last() *jobs.ScheduleRun {
	var last *jobs.ScheduleRun
	for i := range e.Runs {
		if r := &e.Runs[i]; r.Outcome != nil && r.Outcome.Job != "" && (last == nil || !r.Decided.Before(last.Decided)) {
			last = r
		}
	}
	return last
}

// Open returns the newest run that is to be submitted and was not, or nil: a process was
// killed, or a scheduler did not answer. One that a later run has followed does not count.
func (e *Entry) Open() *jobs.ScheduleRun {
	var open *jobs.ScheduleRun
	for i := range e.Runs {
		switch r := &e.Runs[i]; {
		case r.Skip != "" || r.Manual:
		case open == nil || !r.Decided.Before(open.Decided):
			open = r
		}
	}
	if open != nil && open.Outcome == nil {
		return open
	}
	return nil
}
