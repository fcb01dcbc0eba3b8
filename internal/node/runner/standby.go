package runner

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"berth/internal/node/batch"
	"berth/internal/node/conclude"
	"berth/internal/node/supervise"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// standsFor bounds how long a standby has its resources without a task: the
// longest pause before another attempt is ten minutes.
const standsFor = 12 * time.Minute

// openStandby is open for a standby behind the attempt in dir;
// nil is that it is not needed.
func openStandby(dir, client string, stderr io.Writer, periods times, signals <-chan os.Signal) (*attempt, error) {
	rec, err := store.LoadOf(dir)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the job", Err: err,
			Hint: "does this node see " + dir + "? BERTH_HOME must be on a file system that the nodes share"}
	}
	if b := rec.Spec.Profile.Beat; b > 0 {
		periods = timesOf(b)
	}
	_, job := batch.Here(os.Getenv)
	id := job.ID
	at := slices.IndexFunc(rec.Attempts, func(a jobs.Attempt) bool { return isJob(&a, id) })
	if at < 0 {
		a, err := standIn(dir, id, client, periods, signals)
		if a == nil || err != nil {
			return nil, err
		}
		return open(a.Dir, stderr, periods)
	}
	return open(rec.Attempts[at].Dir, stderr, periods) // it was requeued
}

// standIn returns the attempt that a standby job of the scheduler (id) runs; it was
// submitted behind the attempt in dir. When a retry is due that requests what this
// job has, the job runs that; else the result is nil, and nothing was changed. The
// start of the standby shows that the scheduler has ended the attempt before, whose
// runner may have been killed. The program client records that end, and leaves the
// retry to this process.
func standIn(dir, id, client string, periods times, signals <-chan os.Signal) (*jobs.Attempt, error) {
	var beat, seen time.Time // the last heartbeat, and when it was first seen
	for begun := time.Now(); ; {
		rec, err := store.LoadOf(dir)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(rec.Attempts, func(a jobs.Attempt) bool { return a.Dir == dir })
		if at < 0 {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "there is no attempt in " + dir}
		}
		own, cur := &rec.Attempts[at], rec.Current()
		if cur.N > own.N && cur.Claim == nil && isJob(cur, id) {
			return cur, nil // the start before this one ended before its claim
		}
		step := jobs.Next(rec, nil, time.Now())
		is := step.Decision.Change
		pause := max(periods.Beat, time.Second)
		switch {
		case rec.Cancel != nil, time.Since(begun) > standsFor:
			return nil, nil
		case step.Do == jobs.DoBegin && !own.Info.Change.SameRequest(is):
			return nil, nil
		case step.Do == jobs.DoBegin && time.Now().Before(is.NotBefore):
			pause = min(time.Until(is.NotBefore), pause)
		case step.Do == jobs.DoBegin:
			h := standbyHandle(rec, own, id)
			return beginHere(rec, step.Decision, h.Name, &h)
		case step.Do == jobs.DoNothing && cur.Over():
			return nil, nil // it is over
		case !precedes(rec, own, cur):
			return nil, nil // another process has submitted another attempt
		case step.Do == jobs.DoDecide:
			if err := decideHere(rec, nil, "standby"); err != nil {
				return nil, err
			}
			continue
		default:
			if !cur.Beat.Equal(beat) || seen.IsZero() {
				beat, seen = cur.Beat, time.Now()
			}
			_ = callFollow(client, rec) // where the node lacks the scheduler's programs, the timeout below decides
			if cur.Claim != nil && step.Do == jobs.DoNothing && time.Since(seen) >= periods.Silent {
				if err := gone(cur); err != nil {
					return nil, err
				}
			}
		}
		select {
		case <-time.After(pause):
		case s := <-signals:
			if supervise.Asks(s) {
				return nil, nil
			}
		}
	}
}

// isJob reports whether an attempt is in this job of the scheduler.
func isJob(a *jobs.Attempt, id string) bool {
	return a.Submitted != nil && a.Submitted.Handle.NativeID == id
}

// precedes tells whether the job of an attempt is one behind which a standby of
// own was submitted, so that the scheduler has ended it.
func precedes(rec *jobs.Record, own, cur *jobs.Attempt) bool {
	if cur.Submitted == nil {
		return false
	}
	h := cur.Submitted.Handle
	return cur.N == own.N || isJob(own, h.NativeID) || rec.StandbyFor(h) > 0 // isJob: that was requeued
}

// standbyHandle is how this job is found again.
func standbyHandle(rec *jobs.Record, own *jobs.Attempt, id string) jobs.Handle {
	for _, h := range rec.Waiting() {
		if h.NativeID == id {
			return h
		}
	}
	h := own.Submitted.Handle // its submitter has not recorded it yet, or was killed
	_, job := batch.Here(os.Getenv)
	h.NativeID, h.Name = id, job.Name
	if h.Name == "" {
		h.Name = jobs.StandbyName(own.Info.ID, 1)
	}
	return h
}

// callFollow has berth ask the scheduler, conclude and decide.
func callFollow(client string, rec *jobs.Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := run.Output(ctx, run.Local{}, jobs.Cmd{
		Argv: []string{client, jobs.VerbFollow, rec.Spec.ID},
		Env:  append(os.Environ(), "BERTH_HOME="+store.HomeOf(rec.Dir)),
	})
	return err
}

// gone records that an attempt's runner is: the scheduler has ended its job, and it was
// silent for as long as one that lives on cannot be.
func gone(a *jobs.Attempt) error {
	fresh, err := store.LoadFresh(a.Dir)
	if err != nil || fresh.Over() || !fresh.Beat.Equal(a.Beat) {
		return err
	}
	reason := fmt.Sprintf("its runner has been silent since %s, and the scheduler has begun the job that waited for its end",
		a.Beat.UTC().Format(time.RFC3339))
	if fresh.Unfinished() {
		_, err = conclude.Attempt(fresh, reason)
		return err
	}
	_, err = conclude.Verdict(a.Dir, jobs.Verdict{Version: 1, State: jobs.StateLost, Time: time.Now().UTC(),
		Hint: "what it left is in " + a.Dir, Reason: reason})
	return err
}
