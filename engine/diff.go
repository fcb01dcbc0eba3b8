package engine

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/internal/workspace"
	"berth/jobs"
)

// Diff opens the patch of what the current attempt of a job has changed. It is git's own
// text: what a file says may drive a terminal. A job without a result, or whose task has
// no repository, is an error of the kind [jobs.KindNotFound].
func (e *Engine) Diff(rec *jobs.Record) (io.ReadCloser, error) {
	a := rec.Current()
	if a == nil {
		return nil, noDiff(rec, nil)
	}
	f, err := disk.OpenRegular(filepath.Join(a.Dir, workspace.DiffFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noDiff(rec, nil)
	}
	if err != nil {
		return nil, noDiff(rec, err)
	}
	return f, nil
}

func noDiff(rec *jobs.Record, err error) error {
	short := jobs.Short(rec.Spec.ID)
	return &jobs.Error{Kind: jobs.KindNotFound, Msg: "job " + short + " has no diff: it is " + string(jobs.StateOf(rec)), Err: err, Hint: "berth status " + short}
}
