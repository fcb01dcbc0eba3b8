package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sweeps "berth/internal/sweep"
	"berth/jobs"
	"berth/jobs/store"
)

// sweepQueue finds jobs of the schedulers that were submitted for an attempt, or as
// workers of a sweep, of this state directory that has no record any more, or for an attempt that has ended and
// that wait all the same: Slurm holds what it could not launch again.
func (e *Engine) sweepQueue(ctx context.Context, dry, force bool) (found []Left, err error) {
	var errs []error
	for _, sc := range e.Schedulers {
		lister, ok := sc.(jobs.Cluster)
		if !ok || sc.Check(ctx).Health == jobs.Undetected {
			continue
		}
		list, err := lister.List(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("the queue of %s: %w", sc.Name(), err))
			continue
		}
		spent, err := e.sweepSpent(ctx, sc, list, dry)
		found, errs = append(found, spent...), append(errs, err)
		var orphans []jobs.Handle
		first := len(found)
		for _, j := range list {
			if record := e.recordOf(j.Dir); record == "" || !gone(record) {
				continue
			}
			found = append(found, Left{What: LeftSlurmJob, Name: j.Handle.NativeID,
				Why: j.Handle.Name + ": there is no record in " + j.Dir, Result: DoneFound})
			orphans = append(orphans, j.Handle)
		}
		if dry || len(orphans) == 0 {
			continue
		}
		result := DoneNeeds
		var cerr error
		if force {
			if result, cerr = DoneRemoved, sc.Cancel(ctx, orphans); cerr != nil {
				result = DoneFailed
			}
		}
		for i := first; i < len(found); i++ {
			found[i].Result, found[i].Err = result, cerr
		}
	}
	return found, errors.Join(errs...)
}

// sweepSpent finds those of a scheduler's jobs that wait for nothing: they are
// known by name and directory, and their job has ended, or goes on in another
// one. What begins after all finds that out by itself and touches nothing.
func (e *Engine) sweepSpent(ctx context.Context, sc jobs.Scheduler, list []jobs.Listed, dry bool) (found []Left, err error) {
	var handles []jobs.Handle
	var of []Left
	for _, j := range list {
		id := filepath.Base(store.JobDirOf(j.Dir))
		if !jobs.ValidID(id) || store.JobDirOf(j.Dir) != e.Store.JobDir(id) {
			continue
		}
		// Not what was read when this began: a job may go on meanwhile.
		r, lerr := e.Store.Load(id)
		if lerr != nil {
			continue // or may have a record that cannot be read
		}
		if why := e.spent(r, j.Handle); why != "" {
			handles, of = append(handles, j.Handle), append(of, Left{
				What:   LeftSlurmJob,
				Name:   j.Handle.NativeID,
				Job:    id,
				Why:    j.Handle.Name + ": " + why,
				Result: DoneFound,
			})
		}
	}
	if len(handles) == 0 {
		return nil, nil
	}
	got, err := sc.Status(jobs.WithUrgency(ctx), handles)
	var waiting []jobs.Handle
	for i, h := range handles {
		st, known := got[h.Name]
		if !known || st.State != jobs.StatePending {
			continue // what runs is for sweepProcesses, and for its runner
		}
		if st.Explanation != "" {
			of[i].Why += "; it " + st.Explanation
		}
		waiting, found = append(waiting, h), append(found, of[i])
	}
	if err != nil || dry || len(waiting) == 0 {
		return found, err
	}
	err = sc.Cancel(ctx, waiting)
	for i := range found {
		if found[i].Result = DoneRemoved; err != nil {
			found[i].Result, found[i].Err = DoneFailed, err
		}
	}
	return found, nil
}

// spent says why a job of the scheduler, which has a name of one of the record's
// attempts or of what was submitted with it, is not needed any more; "" is that
// it may be.
func (e *Engine) spent(r *jobs.Record, h jobs.Handle) string {
	cur := r.Current()
	for i := range r.Attempts {
		a := &r.Attempts[i]
		names := []string{a.Info.Name, jobs.ReaperName(a.Info.ID)}
		for n := range mostStandbys {
			names = append(names, jobs.StandbyName(a.Info.ID, n+1))
		}
		if !slices.Contains(names, h.Name) {
			continue
		}
		ended := endedAt(cur)
		if jobs.StateOf(r).Final() && !ended.IsZero() && e.Now().Sub(ended) >= afterEnd {
			return "its job ended at " + ended.UTC().Format(time.RFC3339)
		}
		// A job that Slurm has put back becomes the next attempt, unless another
		// job is that already.
		if h.Name == a.Info.Name && h.Name != cur.Info.Name && a.Over() && cur.Submitted != nil && cur.Submitted.Handle.NativeID != h.NativeID {
			return fmt.Sprintf("attempt %d has ended, and attempt %d goes on with the job", a.N, cur.N)
		}
	}
	return ""
}

// recordOf is the file of the record that a job which was submitted for dir has: of an
// attempt, or of the sweep of workers; "" is that the directory is not of this ledger.
func (e *Engine) recordOf(dir string) string {
	rest, err := filepath.Rel(e.Store.Home(), dir)
	if err != nil || !filepath.IsLocal(rest) {
		return ""
	}
	parts := strings.Split(rest, string(filepath.Separator))
	switch {
	case parts[0] == "jobs" && len(parts) > 1:
		return filepath.Join(dir, "attempt.json")
	case parts[0] == "sweeps" && len(parts) == 5: // sweeps/NN/ID/jobs/N
		return sweeps.SpecFile(filepath.Dir(filepath.Dir(dir)))
	}
	return ""
}

// gone tells whether a file is not there: whatever else is wrong with it, it may be.
func gone(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, os.ErrNotExist)
}
