package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"sync"

	"berth/jobs"
)

// AttemptDir is the directory of a job's n-th attempt.
func AttemptDir(jobDir string, n int) string {
	return filepath.Join(jobDir, dirAttempts, fmt.Sprintf("%04d", n))
}

// Load reads the record of one job.
func (s *Store) Load(id string) (*jobs.Record, error) {
	return LoadDir(s.JobDir(id))
}

// LoadDir reads the record that stands in a job's directory.
func LoadDir(dir string) (*jobs.Record, error) {
	r := &jobs.Record{Dir: dir}
	ok, err := readJSON(filepath.Join(dir, fileJob), &r.Spec)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no job record in " + dir}
	}
	if r.Spec.Version > jobs.SpecVersion {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("job %s was recorded by a newer berth (schema %d)", jobs.Short(r.Spec.ID), r.Spec.Version), Hint: "use that version of berth"}
	}
	if r.Cancel, err = optional[jobs.Cancel](filepath.Join(dir, fileCancel)); err != nil {
		return nil, err
	}
	names, err := readNames(filepath.Join(dir, dirAttempts))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	sort.Strings(names)
	for _, name := range names {
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 {
			continue
		}
		a, err := LoadAttempt(filepath.Join(dir, dirAttempts, name))
		if err != nil {
			return nil, err
		}
		a.N = n
		r.Attempts = append(r.Attempts, *a)
	}
	return r, nil
}

// LoadAttempt reads one attempt's files.
func LoadAttempt(dir string) (*jobs.Attempt, error) {
	// One listing instead of a failed open for each file that may exist: most
	// attempts have half of them, and on a network file system each miss is a
	// round trip.
	names, err := readNames(dir)
	if err != nil {
		return nil, err
	}
	a := &jobs.Attempt{Dir: dir}
	for _, name := range names {
		path := filepath.Join(dir, name)
		var err error
		switch name {
		case fileAttempt:
			_, err = readJSON(path, &a.Info)
			a.N = a.Info.Number
		case fileSubmitted:
			a.Submitted, err = optional[jobs.Submitted](path)
		case fileClaim:
			a.Claim, err = optional[jobs.Claim](path)
		case fileExit:
			a.Exit, err = optional[jobs.ExitRecord](path)
		case fileVerdict:
			a.Verdict, err = optional[jobs.Verdict](path)
		case fileTaken:
			a.Taken, err = optional[jobs.Taken](path)
		case fileBeat:
			var fi os.FileInfo
			if fi, err = os.Stat(path); err == nil {
				a.Beat = fi.ModTime()
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return a, nil
}

func optional[T any](path string) (*T, error) {
	var v T
	ok, err := readJSON(path, &v)
	if err != nil || !ok {
		return nil, err
	}
	return &v, nil
}

// List reads all records, oldest first. A record that cannot be read is left
// out and reported in the error, beside the others.
func (s *Store) List() ([]*jobs.Record, error) {
	ids, err := s.ids("")
	if err != nil {
		return nil, err
	}
	recs := make([]*jobs.Record, len(ids))
	errs := make([]error, len(ids))
	var wg sync.WaitGroup
	workers := max(2, min(8, runtime.GOMAXPROCS(0)*2))
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := w; i < len(ids); i += workers {
				recs[i], errs[i] = s.Load(ids[i])
			}
		}()
	}
	wg.Wait()
	out := recs[:0]
	for i, r := range recs {
		if r != nil {
			out = append(out, r)
		} else if jobs.KindOf(errs[i]) == jobs.KindNotFound {
			errs[i] = nil // removed while we looked
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Spec.ID < out[j].Spec.ID })
	return out, errors.Join(errs...)
}
