package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"berth/internal/sys/disk"
	"berth/internal/sys/failpoint"
	"berth/jobs"
)

// Begin records a job's next attempt: the directory appears whole, in one
// rename. Of several that begin the same attempt one wins, and the others get
// false. info.Number says which one it is; the one before must have a decision
// to retry.
func Begin(jobDir string, info jobs.AttemptInfo, script string) (dir string, won bool, err error) {
	fail := func(err error) error {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "record attempt " + attemptName(info.Number) + " of job " + jobs.Short(filepath.Base(jobDir)),
			Err:  err,
			Hint: "is there space left? df -h " + jobDir + "; df -i " + jobDir}
	}
	all := filepath.Join(jobDir, dirAttempts)
	dir = AttemptDir(jobDir, info.Number)
	b, err := encode(info)
	if err != nil {
		return "", false, err
	}
	// Two may copy the same attempt from another machine at once.
	tmp, err := os.MkdirTemp(all, prefixNew+info.ID+"-*")
	if err != nil {
		return "", false, fail(err)
	}
	failpoint.Hit("begin.made")
	err = each(map[string][]byte{
		filepath.Join(tmp, fileAttempt): b,
		filepath.Join(tmp, fileScript):  []byte(script),
	}, func(path string, data []byte) error { return writeSynced(path, data, 0o600) })
	failpoint.Hit("begin.written")
	if err == nil {
		err = disk.SyncDir(tmp)
	}
	failpoint.Hit("begin.synced")
	if err != nil {
		_ = disk.RemoveTree(tmp)
		return "", false, fail(err)
	}
	// rename(2) takes the place of an empty directory only, and an attempt's
	// is never empty.
	err = os.Rename(tmp, dir)
	if taken := errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist); taken || errors.Is(err, fs.ErrNotExist) {
		_ = disk.RemoveTree(tmp)
		// A lost reply makes a rename that was done look like a failure.
		a, lerr := LoadAttempt(dir)
		if lerr != nil {
			return "", false, fail(errors.Join(err, lerr))
		}
		return dir, a.Info.ID == info.ID, nil
	}
	if err != nil {
		_ = disk.RemoveTree(tmp)
		return "", false, fail(err)
	}
	failpoint.Hit("begin.renamed")
	return dir, true, disk.SyncDir(all)
}

// TakeBack removes an attempt that no scheduler has, so that it can be begun
// again. An attempt that has been submitted or claimed meanwhile, or that another
// process began, is left alone.
func TakeBack(jobDir string, info jobs.AttemptInfo) error {
	dir := AttemptDir(jobDir, info.Number)
	a, err := LoadFresh(dir)
	if err != nil {
		return err
	}
	if a.Info.ID != info.ID || a.Submitted != nil || a.Claim != nil || a.Exit != nil || a.Verdict != nil {
		return nil
	}
	gone := filepath.Join(filepath.Dir(dir), prefixGone+info.ID)
	if err := moveDir(dir, gone); err != nil {
		return err
	}
	failpoint.Hit("takeback.renamed")
	if err := disk.SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	failpoint.Hit("takeback.synced")
	return disk.RemoveTree(gone)
}
