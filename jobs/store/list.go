package store

import (
	"errors"
	"runtime"
	"sort"
	"sync"
	"time"

	"berth/jobs"
)

// List reads all records, oldest first. A record that cannot be read is left
// out and reported in the error, beside the others.
func (s *Store) List() ([]*jobs.Record, error) {
	index := make(chan *index, 1)
	go func() { index <- s.loadIndex() }()
	ids, err := s.ids("")
	idx := <-index
	if ids == nil && err != nil {
		return nil, err
	}
	recs := make([]*jobs.Record, len(ids))
	rows := make([]*row, len(ids))
	errs := make([]error, len(ids), len(ids)+1)
	now := time.Now()
	var wg sync.WaitGroup
	workers := max(2, min(8, runtime.GOMAXPROCS(0)*2))
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := w; i < len(ids); i += workers {
				recs[i], rows[i], errs[i] = s.loadIndexed(ids[i], idx, now)
			}
		}()
	}
	wg.Wait()
	s.saveIndex(idx, rows)
	out := recs[:0]
	for i, r := range recs {
		if r != nil {
			out = append(out, r)
		} else if jobs.KindOf(errs[i]) == jobs.KindNotFound {
			errs[i] = nil // removed while we looked
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Spec.ID < out[j].Spec.ID })
	return out, errors.Join(append(errs, err)...)
}
