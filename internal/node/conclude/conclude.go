// Package conclude ends attempts whose runners were killed: with a verdict, or, between
// the decision to accept their results and the record of that, with that record.
package conclude

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// Attempt records the end of an attempt that is [jobs.Attempt.Unfinished], in
// place of its runner. The caller has made sure that this is gone, as for a
// verdict, and says how. The branch is brought in by whoever looks at the job, as
// after every runner that could not do so. What cannot be made to count any more
// is said to be an error, whatever was decided: won is false where another
// process, or the runner after all, was first.
func Attempt(a *jobs.Attempt, gone string) (won bool, err error) {
	rec := a.Finish(gone)
	if o := rec.Overlay; o != nil && o.Way == jobs.WaySnapshot {
		use := *o
		if use.Promoted, err = store.HasPromoted(a.Dir); err != nil {
			return false, err
		}
		rec.Overlay = &use
	}
	if why, hint, err := lacks(a.Dir, &rec); err != nil {
		return false, err
	} else if why != "" && rec.State == jobs.StateCompleted {
		rec.State, rec.Code, rec.Reason, rec.Hint = jobs.StateError, jobs.CodeInfra, "it succeeded, but "+why, hint
	} else if why != "" {
		rec.Notes = append(rec.Notes, why)
	}
	if why := PutAway(a.Dir); why != "" {
		rec.Notes = append(rec.Notes, why)
	}
	store.DropReserve(a.Dir) // it was kept for this
	return store.SetExit(a.Dir, rec)
}

// lacks is what of the result does not count outside of the attempt's directory
// and cannot be made to, or "".
func lacks(dir string, rec *jobs.ExitRecord) (why, hint string, err error) {
	var changed []*jobs.Result
	if rec.Result != nil {
		changed = rec.Result.All()
	}
	for _, res := range changed {
		if res.Commit == "" {
			continue
		}
		bundle := filepath.Join(jobs.ResultDir(dir, res.Workspace), workspace.BundleFile)
		switch _, err := os.Lstat(bundle); {
		case errors.Is(err, fs.ErrNotExist):
			return "the bundle with its result is gone: " + bundle,
				"if the branch " + res.Branch + " is in the repository, it is whole; else submit it again", nil
		case err != nil:
			return "", "", err
		}
	}
	if o := rec.Overlay; o != nil && o.Way == jobs.WaySnapshot && !o.Promoted && rec.State == jobs.StateCompleted {
		return "its runner was killed before it could say that overlay " + o.Name +
			" has what the task has changed", "berth overlay show " + o.Name, nil
	}
	return "", "", nil
}

// Verdict records what is concluded of an attempt that left no record, and then does
// [PutAway]: not before, or a runner that was only slow would lose its task's .git
// without being told. Until it is done the verdict itself warns.
func Verdict(attemptDir string, v jobs.Verdict) (won bool, err error) {
	work := filepath.Join(attemptDir, workspace.WorkDir)
	_, err = os.Lstat(work)
	left := err == nil
	if left && v.Hint != "" {
		v.Hint += "; "
	}
	if left {
		v.Hint += "the task's files in " + work + " are untrusted: run no git there"
	}
	if won, err = store.SetVerdict(attemptDir, v); won && left {
		_ = PutAway(attemptDir) // what it says the hint has said
	}
	return won, err
}

// putAwayTime bounds going through a work tree on a shared file system.
const putAwayTime = time.Minute

// PutAway takes the task's .git out of the work tree that a killed runner has left
// in the attempt's directory, see [workspace.Keep]: people are told where it is.
// Nothing goes on from it: another attempt begins with a bundle. The answer is what
// they should know of it, or "".
func PutAway(attemptDir string) string {
	work := filepath.Join(attemptDir, workspace.WorkDir)
	if _, err := os.Lstat(work); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), putAwayTime)
	defer cancel()
	switch k, err := workspace.Keep(ctx, work, work); {
	case err != nil:
		return "the task's .git is still in " + work + ", so run no git there: " + jobs.Printable(err.Error())
	case k.Closed:
		return work + " cannot be entered before chmod 700: not all of it could be looked through for a .git of the task's"
	}
	return ""
}
