package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	sweeps "berth/internal/sweep"
	"berth/internal/sys/lease"
	"berth/jobs"
)

// What a dead node or a killed process leaves, see [Left].
const (
	LeftAttempt  = "attempt"     // its runner is silent
	LeftRemains  = "remains"     // a half made or half removed part of the ledger
	LeftBranch   = "branch"      // of a result, not in the repository
	LeftSlurmJob = "job"         // in a scheduler's queue, of no record or of an attempt that has ended
	LeftProcess  = "process"     // a runner or a container here, of an attempt that has ended
	LeftScratch  = "scratch"     // a directory of an attempt or environment on this machine
	LeftLease    = "lease"       // of an overlay, whose owner is gone
	LeftOverlay  = "overlay"     // half made or half removed
	LeftEnv      = "environment" // what one has left that is not recorded, or not kept any more
)

// What became of it.
const (
	DoneFound   = "found"   // nothing was asked for
	DoneRemoved = "removed" // or concluded, or ended
	DoneNeeds   = "needs --force"
	DoneWaits   = "waits"   // for its time
	DoneBrought = "brought" // into the repository
	DoneFailed  = "failed"
)

// Left is something that was left behind.
type Left struct {
	What   string `json:"what"`
	Name   string `json:"name"` // an id or a path
	Job    string `json:"job,omitempty"`
	Why    string `json:"why"`
	Result string `json:"result"`
	Err    error  `json:"-"`
}

// afterEnd is how long a runner may be busy after its attempt's end was recorded:
// it begins the next one.
const afterEnd = 5 * time.Minute

// Sweep finds what dead nodes and killed processes have left of jobs, and repairs
// it unless dry is set: it concludes attempts whose runners are gone, removes
// incomplete parts of the ledger, cancels queued jobs that wait for an attempt that
// has ended, and delivers branches that are not in their repository. What could
// still be in use is touched only with force: jobs in the queue without a record,
// and runners on this host whose attempt has ended.
func (e *Engine) Sweep(ctx context.Context, dry, force bool) (found []Left, err error) {
	remains := e.Store.Remains()
	recs, err := e.Store.List()
	if err != nil {
		return nil, err // what is not known to be recorded must not count as an orphan
	}
	found = append(found, e.sweepRemains(remains, dry)...)
	found = append(found, e.sweepSweeps(dry)...)
	found = append(found, e.sweepAttempts(ctx, recs, dry)...)
	found = append(found, e.sweepBranches(jobs.WithUrgency(ctx), recs, dry)...)
	found = append(found, e.sweepProcesses(recs, dry, force)...)
	orphans, err := e.sweepQueue(ctx, dry, force)
	return append(found, orphans...), err
}

func (e *Engine) sweepRemains(remains []string, dry bool) (found []Left) {
	var err error
	if !dry && len(remains) > 0 {
		err = e.Store.SweepAll()
	}
	for _, path := range remains {
		l := Left{What: LeftRemains, Name: path, Why: "whoever made or removed it was killed, a day ago at least", Result: DoneFound}
		if _, serr := os.Lstat(path); !dry {
			if l.Result = DoneRemoved; serr == nil {
				l.Result, l.Err = DoneFailed, errors.Join(err, errors.New("it is still there"))
			}
		}
		found = append(found, l)
	}
	return found
}

// sweepSweeps removes what killed commands have left of sweeps.
func (e *Engine) sweepSweeps(dry bool) (found []Left) {
	for _, path := range sweeps.Remains(filepath.Join(e.Store.Home(), "sweeps"), time.Now()) {
		l := Left{What: LeftRemains, Name: path, Why: "of a sweep, or of tasks that were being added to one, whose command was killed",
			Result: DoneFound}
		if !dry {
			if l.Result, l.Err = DoneRemoved, sweeps.Clean(path); l.Err != nil {
				l.Result = DoneFailed
			}
		}
		found = append(found, l)
	}
	return found
}

// sweepAttempts looks at every job that has not ended, as any verb does; those
// that are silent are what is left of a dead node.
func (e *Engine) sweepAttempts(ctx context.Context, recs []*jobs.Record, dry bool) (found []Left) {
	var live []*jobs.Record
	var at []int
	for _, r := range recs {
		if jobs.StateOf(r).Final() {
			continue
		}
		live, at = append(live, r), append(at, len(found))
		a := r.Current()
		at[len(at)-1] = -1
		if a == nil || a.Claim == nil || a.Over() || e.Now().Sub(lastSign(a)) < quiet(&r.Spec) {
			continue
		}
		at[len(at)-1] = len(found)
		found = append(found, Left{What: LeftAttempt, Name: fmt.Sprintf("%s/%d", jobs.Short(r.Spec.ID), a.N), Job: r.Spec.ID, Result: DoneFound,
			Why: "its runner on " + a.Claim.Host + " has been silent since " + lastSign(a).UTC().Format(time.RFC3339)})
	}
	if dry {
		return found
	}
	ns := make([]int, len(live))
	for i, r := range live {
		ns[i] = len(r.Attempts)
	}
	for i, v := range e.Reconcile(jobs.WithUrgency(ctx), live) {
		if at[i] < 0 || len(v.Attempts) < ns[i] {
			continue
		}
		l := &found[at[i]]
		switch a := &v.Attempts[ns[i]-1]; {
		case a.Over():
			l.Result = DoneRemoved
			l.Why += "; concluded: " + string(jobs.StateOfAttempt(a))
		case v.AskError != nil:
			l.Result, l.Err = DoneFailed, v.AskError
		default:
			l.Result = DoneWaits
			l.Why += "; it is taken for gone at " + lastSign(a).Add(silent(&v.Spec)).UTC().Format(time.RFC3339) +
				", if the scheduler does not know it then"
		}
	}
	return found
}

// sweepProcesses finds runners on this machine whose attempt has ended: by the
// number and start that they have recorded of themselves.
func (e *Engine) sweepProcesses(recs []*jobs.Record, dry, force bool) (found []Left) {
	me := lease.Self()
	for _, r := range recs {
		for i := range r.Attempts {
			a := &r.Attempts[i]
			ended := endedAt(a)
			if ended.IsZero() || a.Claim == nil || a.Claim.Start == "" {
				continue
			}
			p := lease.Process{Host: a.Claim.Host, BootID: a.Claim.BootID, PID: a.Claim.PID, Start: a.Claim.Start}
			if e.Now().Sub(ended) < afterEnd || !p.Near(me) || lease.StartTime(p.PID) != p.Start {
				continue
			}
			l := Left{
				What:   LeftProcess,
				Name:   fmt.Sprint(p.PID),
				Job:    r.Spec.ID,
				Why:    fmt.Sprintf("the runner of attempt %d, which ended at %s", a.N, ended.UTC().Format(time.RFC3339)),
				Result: DoneFound,
			}
			switch {
			case dry:
			case !force:
				l.Result = DoneNeeds
			default:
				l.Result = DoneRemoved
				if l.Err = syscall.Kill(p.PID, syscall.SIGTERM); l.Err != nil {
					l.Result = DoneFailed
				}
			}
			found = append(found, l)
		}
	}
	return found
}

// endedAt is when an attempt ended, as far as its record says; zero is not yet.
func endedAt(a *jobs.Attempt) time.Time {
	switch {
	case a.Exit != nil:
		return a.Exit.Ended
	case a.Verdict != nil:
		return a.Verdict.Time
	}
	return time.Time{}
}

// EndedMarks are the marks of attempts that ended a while ago, by which their
// containers are known: the last part of the attempt's name. One whose runner is
// still there is not among them. The values say whose they are.
func (e *Engine) EndedMarks() (map[string]Left, error) {
	recs, err := e.Store.List()
	if err != nil {
		return nil, err
	}
	me := lease.Self()
	marks := map[string]Left{}
	for _, r := range recs {
		open := map[string]bool{}
		for i := range r.Attempts {
			a := &r.Attempts[i]
			mark := a.Info.Name[strings.LastIndexByte(a.Info.Name, '-')+1:]
			ended := endedAt(a)
			// Attempts of a job that Slurm requeued share one name.
			if c := a.Claim; ended.IsZero() || e.Now().Sub(ended) < afterEnd ||
				c != nil && (lease.Process{Host: c.Host, BootID: c.BootID}).Near(me) && c.Start != "" && lease.StartTime(c.PID) == c.Start {
				open[mark] = true
			}
			marks[mark] = Left{
				What:   LeftProcess,
				Job:    r.Spec.ID,
				Result: DoneFound,
				Why: fmt.Sprintf("the container of attempt %d, which ended at %s, and its runner is not here",
					a.N, ended.UTC().Format(time.RFC3339)),
			}
		}
		for mark := range open {
			delete(marks, mark)
		}
	}
	return marks, nil
}
