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
// out and reported in the error, beside the others; the list is nil when there
// is no other.
func (s *Store) List() ([]*jobs.Record, error) { return s.list(true) }

// ListOpen is [Store.List] without the jobs that are at rest ([jobs.AtRest]):
// they are most of an old ledger, and cost three stats each.
func (s *Store) ListOpen() ([]*jobs.Record, error) { return s.list(false) }

// listing is one look at all records.
type listing struct {
	store *Store
	all   bool // also the ones at rest
	few   bool // it is no look at all of them, and the index stays as it is
	now   time.Time
	old   *index
	next  indexWriter
	ids   []string
	// Of each id: its record, if it is wanted; its row in the old index, if that
	// holds; what is wrong with it.
	recs []*jobs.Record
	kept []*row
	errs []error
}

func (s *Store) list(all bool) ([]*jobs.Record, error) {
	index := make(chan *index, 1)
	go func() { index <- s.loadIndex() }()
	ids, err := s.ids("")
	old := <-index
	defer old.close()
	if ids == nil && err != nil {
		return nil, err
	}
	n := len(ids)
	l := &listing{store: s, all: all, now: time.Now(), old: old, next: indexWriter{path: s.index}, ids: ids,
		recs: make([]*jobs.Record, n), kept: make([]*row, n), errs: make([]error, n, n+1)}
	var wg sync.WaitGroup
	workers := max(2, min(8, runtime.GOMAXPROCS(0)*2))
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				l.recs[i], l.errs[i] = l.look(i)
			}
		})
	}
	wg.Wait()
	l.save()
	out := l.recs[:0]
	bad := 0
	for i, r := range l.recs {
		if r != nil {
			out = append(out, r)
		}
		switch {
		case l.errs[i] == nil:
		case jobs.KindOf(l.errs[i]) == jobs.KindNotFound:
			l.errs[i] = nil // removed while we looked
		default:
			bad++
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Spec.ID < out[j].Spec.ID })
	err = errors.Join(append(l.errs, err)...)
	if err != nil && bad == n {
		return nil, err
	}
	return out, err
}

// look reads the i-th record, from the index where that holds. It is nil when
// it is not wanted.
func (l *listing) look(i int) (*jobs.Record, error) {
	id := l.ids[i]
	dir := l.store.JobDir(id)
	// The times before the content: a change in between shows the next time.
	at, stamped := stampsOf(dir)
	if r := l.old.rows[id]; r != nil && stamped && r.stamps == at {
		if r.rest && !l.all {
			l.kept[i] = r
			return nil, nil
		}
		if rec := l.old.record(r); rec != nil {
			l.kept[i] = r
			return rec, nil
		}
	}
	s, err := scan(dir)
	if err != nil {
		return nil, err
	}
	rec, err := s.record(dir)
	if err != nil {
		return nil, err
	}
	rest := jobs.AtRest(rec) && !s.attempts[0].secrets
	a := rec.Current()
	switch {
	case !stamped, len(rec.Attempts) != 1, a.Claim != nil && a.Exit == nil, !at.before(l.now.Add(-settled)):
		// It may change at any moment; a beat changes no directory.
	case l.indexed():
		l.next.add(row{id: id, stamps: at, rest: rest}, rec)
	}
	if rest && !l.all {
		return nil, nil
	}
	return rec, nil
}

func (l *listing) indexed() bool { return !l.few && l.store.index != "" && len(l.ids) >= indexFrom }

// save replaces the index when enough has changed to be worth the write.
func (l *listing) save() {
	defer l.next.drop()
	if !l.indexed() {
		return
	}
	kept := make([][]*row, len(l.old.chunks))
	gone := len(l.old.rows)
	for _, r := range l.kept {
		if r != nil {
			kept[r.chunk] = append(kept[r.chunk], r)
			gone--
		}
	}
	if len(l.next.rows)+gone <= len(l.ids)/32 && !l.old.bad.Load() {
		return
	}
	for i, rows := range kept {
		if len(rows) == 0 {
			continue
		}
		c := &l.old.chunks[i]
		recs := c.recs
		if recs == nil {
			recs, _ = readChunk(l.old.file, c) // what is missing is read from the ledger the next time
		}
		for _, r := range rows {
			if rec := r.in(recs); rec != nil {
				l.next.add(*r, rec)
			}
		}
	}
	l.next.finish(l.store.home)
}
