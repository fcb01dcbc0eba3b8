package look

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"berth/internal/sweep"
	"berth/internal/sweep/journal"
)

// Tail reads the ends of tasks as workers record them.
type Tail struct {
	s    *sweep.Sweep
	from map[uint32]int64
}

// NewTail begins with the last ends that each worker has recorded, most of them.
func NewTail(s *sweep.Sweep, most int) (*Tail, []journal.Record, error) {
	t := &Tail{s, map[uint32]int64{}}
	all, err := s.Workers()
	if err != nil {
		return nil, nil, err
	}
	for _, w := range all {
		fi, err := os.Stat(filepath.Join(s.WorkerDir(w), journal.ResultsFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		// A task has some two records, and each slot one that is no end.
		t.from[w] = max(0, fi.Size()/journal.Size-int64(3*most+2*s.Spec.Slots)) * journal.Size
	}
	ends, err := t.Next()
	return t, ends[max(0, len(ends)-most):], err
}

// Next are the ends since the last call, in the order of their times.
func (t *Tail) Next() (ends []journal.Record, err error) {
	all, err := t.s.Workers()
	if err != nil {
		return nil, err
	}
	for _, w := range all {
		to, err := journal.Read(filepath.Join(t.s.WorkerDir(w), journal.ResultsFile), t.from[w], func(r journal.Record) {
			if r.Kind == journal.End {
				ends = append(ends, r)
			}
		})
		if err != nil && !errors.Is(err, journal.ErrDamaged) {
			return nil, err
		}
		t.from[w] = to
	}
	slices.SortStableFunc(ends, func(a, b journal.Record) int {
		return cmp.Or(a.Began.Add(a.Took).Compare(b.Began.Add(b.Took)), cmp.Compare(a.Task, b.Task))
	})
	return ends, nil
}
