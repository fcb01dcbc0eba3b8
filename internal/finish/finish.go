// Package finish ends attempts whose runners were killed between the decision to
// accept their results and the record of that.
package finish

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// Attempt records the end of an attempt that is [jobs.Attempt.Unfinished], in
// place of its runner. The caller has made sure that this is gone, as for a
// verdict, and says how. The branch is brought in by whoever looks at the job, as
// after every runner that could not do so. What cannot be made to count any more
// is said to be an error, whatever was decided: won is false where somebody else,
// or the runner after all, was first.
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
	return store.SetExit(a.Dir, rec)
}

// lacks is what of the result does not count outside of the attempt's directory
// and cannot be made to, or "".
func lacks(dir string, rec *jobs.ExitRecord) (why, hint string, err error) {
	if rec.Result != nil && rec.Result.Commit != "" {
		bundle := filepath.Join(dir, workspace.BundleFile)
		switch _, err := os.Lstat(bundle); {
		case errors.Is(err, fs.ErrNotExist):
			return "the bundle with its result is gone: " + bundle, "if the branch " + rec.Result.Branch + " is in the repository, it is whole; else submit it again", nil
		case err != nil:
			return "", "", err
		}
	}
	if o := rec.Overlay; o != nil && o.Way == jobs.WaySnapshot && !o.Promoted && rec.State == jobs.StateCompleted {
		return "its runner was killed before it could say that overlay " + o.Name + " has what the task has changed", "berth overlay show " + o.Name, nil
	}
	return "", "", nil
}
