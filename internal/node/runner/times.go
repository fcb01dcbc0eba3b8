package runner

import "time"

// times are the periods of supervision. They stand in a fixed ratio: a beat
// every period, a guest that leaves after twelve without a ping, an owner that
// counts as silent after eighteen. A file server that fails over may take that
// long; that the guest has left before its owner counts as silent is what keeps
// two containers from one overlay.
type times struct {
	beat      time.Duration // between signs of life, and between pings
	fresh     time.Duration // a beat that took longer to write is no reason to ping
	guestWait time.Duration // the guest ends the container after so long without a ping
	dead      time.Duration // the guest of a killed owner, whose stream is closed, has left
	silent    time.Duration // an owner without a new beat for so long is gone
	insist    time.Duration // for a record that cannot be written, where the scheduler has no limit
	start     time.Duration // for the container to come up
	grace     time.Duration // between TERM and KILL, unless the scheduler allows less
	unmount   time.Duration // for the container program to clean up after the end
}

func defaultTimes() times {
	return timesOf(10 * time.Second)
}

func timesOf(beat time.Duration) times {
	return times{
		beat:      beat,
		fresh:     2 * beat,
		guestWait: 12 * beat,
		dead:      3 * beat,
		silent:    18 * beat,
		insist:    10 * time.Minute,
		start:     2 * time.Minute,
		grace:     10 * time.Second,
		unmount:   20 * time.Second,
	}
}

// unanswered is how many pings in a row a guest may leave unanswered. They are
// few, because a guest answers whatever hangs around it, and they are counted,
// because a clock also runs while this process is stopped.
func (t times) unanswered() int { return int(t.dead/t.beat) + 1 }

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
