package look

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"

	"berth/internal/sweep/journal"
)

// Try is a run of a task: of one that ended, its end; of another one, its start, with what
// it has written as far as that was recorded.
type Try struct{ journal.Record }

// Ended tells whether it is known how it ended.
func (t Try) Ended() bool { return t.Kind == journal.End || t.Kind == journal.Tried }

// Void tells whether it was stopped (its worker was preempted, out of time or cancelled), so
// that it says nothing of the task and costs it no attempt.
func (t Try) Void() bool { return t.Kind == journal.Tried && t.State == journal.Waiting }

// Tries are all runs of a task, of all rounds and workers, the first one first. It reads the
// results of all workers.
func (l *Look) Tries(task int) ([]Try, error) {
	workers, err := l.Sweep.Workers()
	if err != nil {
		return nil, err
	}
	type run struct {
		worker uint32
		began  int64
	}
	all := map[run]Try{}
	var adopted []journal.Record
	for _, w := range workers {
		_, err := journal.Read(filepath.Join(l.Sweep.WorkerDir(w), journal.ResultsFile), 0, func(r journal.Record) {
			if int(r.Task) != task || r.State == journal.SetAside {
				return // set aside is what never began
			}
			k := run{r.Worker, r.Began.UnixNano()}
			_, begun := all[k]
			switch {
			case r.Kind == journal.Adopted:
				adopted = append(adopted, r)
			case begun || r.Kind == journal.Start || r.Kind == journal.End:
				all[k] = Try{r}
			}
		})
		if err != nil && !errors.Is(err, journal.ErrDamaged) { // those behind it are missing, as status says
			return nil, err
		}
	}
	for _, r := range adopted { // where the end itself cannot be read
		k := run{r.Worker, r.Began.UnixNano()}
		if old, ok := all[k]; !ok || !old.Ended() {
			r.Kind = journal.End
			all[k] = Try{r}
		}
	}
	var tries []Try
	for _, t := range all {
		tries = append(tries, t)
	}
	slices.SortFunc(tries, func(a, b Try) int {
		return cmp.Or(cmp.Compare(a.Round, b.Round), cmp.Compare(a.Generation, b.Generation), a.Began.Compare(b.Began), cmp.Compare(a.Worker, b.Worker))
	})
	return tries, nil
}
