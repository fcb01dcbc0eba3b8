package engine

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

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
	if len(rec.Spec.Further) > 0 {
		return diffs(rec)
	}
	return diffOf(rec)
}

// diffOf opens the patch of one workspace.
func diffOf(rec *jobs.Record) (io.ReadCloser, error) {
	f, err := disk.OpenRegular(filepath.Join(rec.Current().Dir, workspace.DiffFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noDiff(rec, nil)
	}
	if err != nil {
		return nil, noDiff(rec, err)
	}
	return f, nil
}

// diffs are the patches of all workspaces that have changed, each behind a line that says
// of which it is; git takes such a line for a comment.
func diffs(rec *jobs.Record) (io.ReadCloser, error) {
	parts := rec.ChangedParts()
	if len(parts) == 0 {
		return nil, noDiff(rec, nil)
	}
	all := &several{}
	var readers []io.Reader
	for _, p := range parts {
		f, err := diffOf(p)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all.files = append(all.files, f)
		readers = append(readers, strings.NewReader("workspace "+titleOf(p.Spec.Workspace)+"\n"), f)
	}
	all.Reader = io.MultiReader(readers...)
	return all, nil
}

// several are files that are read one behind the other.
type several struct {
	io.Reader
	files []io.Closer
}

// Close closes all of them.
func (s *several) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func noDiff(rec *jobs.Record, err error) error {
	short := jobs.Short(rec.Spec.ID)
	return &jobs.Error{Kind: jobs.KindNotFound, Msg: "job " + short + " has no diff: it is " + string(jobs.StateOf(rec)), Err: err,
		Hint: "berth status " + short}
}
