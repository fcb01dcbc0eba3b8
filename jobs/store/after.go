package store

import (
	"errors"
	"io/fs"

	"berth/jobs"
)

// Wait tells how things stand with jobs that another one waits for, see
// [jobs.WaitFor]. One whose record cannot be read is an error, and not a record
// that was removed.
func (s *Store) Wait(list []jobs.After) (jobs.Wait, map[string]*jobs.Record, error) {
	records := map[string]*jobs.Record{}
	for _, a := range list {
		r, err := s.Load(a.Job)
		switch {
		case err == nil:
			records[a.Job] = r
		case !Missing(err):
			return jobs.Wait{}, nil, err
		}
	}
	return jobs.WaitFor(list, records), records, nil
}

// Missing tells of an error that there is no such record.
func Missing(err error) bool {
	return jobs.KindOf(err) == jobs.KindNotFound || errors.Is(err, fs.ErrNotExist)
}

// FindAll returns the jobs that words name, as [Store.Find] does of one, and
// lists the ledger once.
func (s *Store) FindAll(words []string) ([]*jobs.Record, error) {
	all, err := s.ids("")
	if err != nil {
		return nil, err
	}
	out := make([]*jobs.Record, len(words))
	for i, word := range words {
		var named []string
		for _, id := range all {
			if jobs.MatchID(id, word) {
				named = append(named, id)
			}
		}
		if out[i], err = s.one(word, named); err != nil {
			return nil, err
		}
	}
	return out, nil
}
