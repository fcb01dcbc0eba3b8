package runner

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// record writes the exit.
func (r *attempt) record(rec jobs.ExitRecord) (won bool, err error) {
	err = r.insist("the exit could not be recorded", 0, func() (err error) {
		won, err = store.SetExit(r.dir, rec)
		return err
	})
	if err == nil {
		store.DropReserve(r.dir)
	}
	return won, err
}

// insist tries something for as long as within, or as the scheduler gives time
// (0): a full quota or a file server that restarts must not cost the word on a job
// that has run for days. For the last records, those that are tried to the end, the
// room that was kept for them is given back where there is none.
func (r *attempt) insist(trouble string, within time.Duration, do func() error) error {
	const longest = 15 * time.Second
	began := time.Now()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, longest) {
		err := do()
		if err == nil {
			return nil
		}
		if within == 0 && full(err) && store.DropReserve(r.dir) {
			r.log.Warn(trouble+"; using the room that was kept for that", "err", err)
			if err = do(); err == nil {
				return nil
			}
		}
		if within == 0 && r.purged(err) {
			within = r.times.insist
		}
		left := time.Until(r.insistUntil(began, within))
		if left <= 0 {
			return err
		}
		r.log.Warn(trouble+"; trying again", "err", err)
		var stop <-chan struct{} // who hears of one now may have less time
		if r.stop.Why() == nil {
			stop = r.stop.Done()
		}
		select {
		case <-stop:
		case <-time.After(min(pause, left)):
		}
	}
}

// purged tells whether the attempt's directory is gone and the state directory is
// there: that does not pass, and holds nodes for nothing.
func (r *attempt) purged(err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, gone := os.Lstat(r.dir)
	_, away := os.Lstat(store.HomeOf(store.JobDirOf(r.dir)))
	return errors.Is(gone, fs.ErrNotExist) && away == nil
}

// insistUntil is when something that was first tried at began is given up: before
// the scheduler kills, else after a while.
func (r *attempt) insistUntil(began time.Time, within time.Duration) time.Time {
	const margin = time.Second
	until := began.Add(r.times.insist)
	if !r.jobEnd.IsZero() {
		until = r.jobEnd.Add(-margin)
	}
	if within > 0 && began.Add(within).Before(until) {
		until = began.Add(within)
	}
	if w := r.stop.Why(); w != nil && w.hurry > 0 && w.at.Add(w.hurry-margin).Before(until) {
		until = w.at.Add(w.hurry - margin)
	}
	return until
}

// full tells whether there was no room for something.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
