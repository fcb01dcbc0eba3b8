package sweep

import (
	"time"

	"berth/internal/sweep/claims"
	"berth/internal/sys/lease"
	"berth/jobs"
)

// WorkerTime is when a worker was there.
type WorkerTime struct {
	Began, Ended time.Time // until now, of one that seems to live
	Alive        bool
}

// Hours is how long that was.
func (t WorkerTime) Hours() float64 { return max(t.Ended.Sub(t.Began).Hours(), 0) }

// WorkerTimes are those of all workers, as far as they are known: one that was killed has
// ended at its last beat.
func (s *Sweep) WorkerTimes(now time.Time) ([]WorkerTime, error) {
	workers, err := s.Workers()
	if err != nil {
		return nil, err
	}
	me := lease.Self()
	var all []WorkerTime
	for _, w := range workers {
		dir := s.WorkerDir(w)
		began, ended, ok := claims.Span(dir)
		if !ok {
			continue
		}
		t := WorkerTime{began, ended, claims.SeemsAlive(dir, me, 0, now)}
		if t.Alive {
			t.Ended = now
		}
		all = append(all, t)
	}
	return all, nil
}

// Cores are those that each worker has asked for; of sandboxes those of as many as may run at once.
func (s *Spec) Cores() int {
	switch {
	case s.Worker == nil:
		return max(s.Slots, 1)
	case s.Sandboxes():
		return max(s.Slots, 1) * s.Worker.Resources.Cores()
	}
	return s.Worker.Resources.Cores()
}

// Spent is what a sweep has cost: the time of its workers, as of runners of jobs, times the
// cores that they have asked for. Those that ended before since are left out.
func (s *Sweep) Spent(since, now time.Time) (all []jobs.Spent, ends []time.Time, err error) {
	times, err := s.WorkerTimes(now)
	for _, t := range times {
		if t.Ended.Before(since) {
			continue
		}
		one := jobs.Spent{Attempts: 1, Hours: t.Hours(), CoreHours: t.Hours() * float64(s.Spec.Cores())}
		if t.Alive {
			one.Running = 1
		}
		all, ends = append(all, one), append(ends, t.Ended)
	}
	return all, ends, err
}

// CoreHours are those of all workers until now.
func (s *Sweep) CoreHours(now time.Time) (sum float64, err error) {
	all, _, err := s.Spent(time.Time{}, now)
	for _, one := range all {
		sum += one.CoreHours
	}
	return sum, err
}
