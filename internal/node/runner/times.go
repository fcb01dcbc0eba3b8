package runner

import (
	"time"

	"berth/internal/node/supervise"
)

// times are the periods of supervision, and of a runner.
type times struct {
	supervise.Times
	insist time.Duration // for a record that cannot be written, where the scheduler has no limit
	grace  time.Duration // between TERM and KILL, unless the scheduler allows less
}

func defaultTimes() times { return timesOf(10 * time.Second) }

func timesOf(beat time.Duration) times {
	return times{Times: supervise.TimesOf(beat), insist: 10 * time.Minute, grace: 10 * time.Second}
}

// deadline is when the command must have ended, and how it is known: the
// task's own limit from the start of the command, and a margin before the end
// of the scheduler's job, so that the result can be brought back. The zero time is
// no limit.
func (r *attempt) deadline(start time.Time) time.Time {
	var d time.Time
	if t := r.spec.Resources.Time; t > 0 {
		d = start.Add(t)
	}
	if !r.jobEnd.IsZero() {
		end := r.jobEnd.Add(-margin(r.jobEnd.Sub(r.began)))
		if d.IsZero() || end.Before(d) {
			d = end
		}
	}
	return d
}

// margin is a tenth of what is left, at least 5 s and at most 2 min.
func margin(left time.Duration) time.Duration {
	return min(max(left/10, 5*time.Second), 2*time.Minute)
}
