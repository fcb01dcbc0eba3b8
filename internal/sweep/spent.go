package sweep

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"berth/internal/sweep/claims"
	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// WorkerTime is when a worker was there.
type WorkerTime struct {
	Began, Ended time.Time // until now, of one that seems to live
	Alive        bool

	dir string
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
		t := WorkerTime{Began: began, Ended: ended, Alive: claims.SeemsAlive(dir, me, 0, now), dir: dir}
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
// cores that they have asked for, and what their tasks have asked models for. Workers that ended
// before since are left out. With an error some of it is not known, and the rest is there.
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
		u, unread := s.models(t.dir)
		if err = errors.Join(err, unread); u != nil {
			one.Usage = *u
		}
		all, ends = append(all, one), append(ends, t.Ended)
	}
	return all, ends, err
}

// CoreHours are those of all workers until now.
func (s *Sweep) CoreHours(now time.Time) (sum float64, err error) {
	times, err := s.WorkerTimes(now)
	for _, t := range times {
		sum += t.Hours() * float64(s.Spec.Cores())
	}
	return sum, err
}

// Models is what all tasks have asked models for until now, as the supervisors of their containers
// have counted it; nil is nothing. With an error some of it is not known.
func (s *Sweep) Models() (sum *jobs.Usage, err error) {
	workers, err := s.Workers()
	for _, w := range workers {
		u, unread := s.models(s.WorkerDir(w))
		err, sum = errors.Join(err, unread), add(sum, u)
	}
	return sum, err
}

func add(sum, u *jobs.Usage) *jobs.Usage {
	if u == nil {
		return sum
	}
	if sum == nil {
		sum = &jobs.Usage{}
	}
	sum.Add(u)
	return sum
}

// models is what the tasks of a worker with this directory have asked for: in the container that
// they share, in those of single tasks that are there, and in those that were removed.
func (s *Sweep) models(dir string) (sum *jobs.Usage, err error) {
	if s.Spec.Worker == nil || len(s.Spec.Worker.Credentials) == 0 {
		return nil, nil
	}
	boxes, _ := filepath.Glob(filepath.Join(dir, BoxDir+"*"))
	each, errs := make([]*jobs.Usage, len(boxes)), make([]error, len(boxes))
	for i, d := range boxes {
		each[i], errs[i] = store.LoadUsage(d)
	}
	sum, summed, err := store.LoadSum(dir) // last: of a container that is removed meanwhile it says so
	for i, d := range boxes {
		if !slices.Contains(summed, filepath.Base(d)) {
			err, sum = errors.Join(err, errs[i]), add(sum, each[i])
		}
	}
	return sum, err
}

// mostSummed bounds the names of removed containers that a worker's count has: whoever reads
// it has looked at these a moment before.
const mostSummed = 256

// KeepUsage adds what a task has asked models for in a container of its own, which is to be
// removed, to the count of its worker, once. The worker alone may do so, for one at a time.
func KeepUsage(box string) error {
	u, err := store.LoadUsage(box)
	if u == nil || err != nil {
		return err
	}
	worker, name := filepath.Dir(box), filepath.Base(box)
	sum, summed, err := store.LoadSum(worker)
	if err != nil || slices.Contains(summed, name) {
		return err
	}
	more := max(len(summed)+1-mostSummed, 0)
	summed = slices.DeleteFunc(append(summed, name), func(name string) bool {
		if more == 0 {
			return false
		}
		_, err := os.Lstat(filepath.Join(worker, name))
		gone := errors.Is(err, fs.ErrNotExist)
		if gone {
			more--
		}
		return gone
	})
	return store.SetSum(worker, *add(sum, u), summed)
}

// EndBox removes what a worker that was killed has left of a container, but for what its tasks
// have asked models for: that counts where it stands, as no other than the worker writes its sum.
func EndBox(box string) error {
	files, err := os.ReadDir(box)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(files, isUsage) {
		return disk.RemoveTree(box)
	}
	for _, f := range files {
		if !isUsage(f) {
			err = errors.Join(err, disk.RemoveTree(filepath.Join(box, f.Name())))
		}
	}
	return err
}

func isUsage(f os.DirEntry) bool { return f.Name() == store.FileUsage }
