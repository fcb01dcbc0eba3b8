package store

import (
	"slices"
	"time"

	"berth/jobs"
)

// Few says which records [Store.Few] reads.
type Few struct {
	Want   func(id string) bool // by its id alone; nil is all
	Most   int
	All    bool // also the jobs that are at rest
	Newest bool // from the newest on, and not from the oldest
}

// Few reads some records, one after the other, without a look at the rest: for whoever shows a screen of
// them. Their order is that of the reading. more reports that there are, or may be, others. What
// cannot be read is left out.
func (s *Store) Few(f Few) (recs []*jobs.Record, more bool, err error) {
	ids, err := s.ids("")
	if ids == nil && err != nil {
		return nil, false, err
	}
	if f.Want != nil {
		ids = slices.DeleteFunc(ids, func(id string) bool { return !f.Want(id) })
	}
	slices.Sort(ids) // ids begin with their time
	if f.Newest {
		slices.Reverse(ids)
	}
	old := s.loadIndex()
	defer old.close()
	l := &listing{store: s, all: f.All, few: true, now: time.Now(), old: old, ids: ids, kept: make([]*row, len(ids))}
	for i := range ids {
		if len(recs) == f.Most {
			return recs, true, nil
		}
		if r, err := l.look(i); err == nil && r != nil {
			recs = append(recs, r)
		}
	}
	return recs, false, nil
}
