package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// PrefixExport begins the name of what an export writes, beside its file.
const PrefixExport = ".berth-export-"

// MayWrite refuses, before any work, an export that could not be put in place:
// a file that is there is replaced with force alone, and nothing else is.
func MayWrite(to string, force bool) error {
	fi, err := os.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if fi, err := os.Stat(filepath.Dir(to)); err != nil || !fi.IsDir() {
			return &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no directory " + filepath.Dir(to)}
		}
		return nil
	case err != nil:
		return WriteError(to, err)
	case !fi.Mode().IsRegular():
		return &jobs.Error{Kind: jobs.KindUsage, Msg: to + " is a " + kindOf(fi) + ", which is not replaced", Hint: "name another file"}
	case !force:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: to + " exists already", Hint: "name another file, or say --force to replace it"}
	}
	return nil
}

// WriteError is the error for an export that cannot be written.
func WriteError(to string, err error) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "write " + to, Err: err,
		Hint: "may you write there, and is there room? ls -ld " + filepath.Dir(to) + "; df -h " + filepath.Dir(to)}
}

// Place gives a complete file, which is on the disk, its name on the same file
// system.
func Place(made, to string, force bool) error {
	if err := MayWrite(to, force); err != nil {
		return err
	}
	if force {
		if err := os.Rename(made, to); err != nil {
			return WriteError(to, err)
		}
	} else if err := os.Link(made, to); errors.Is(err, fs.ErrExist) { // link(2) does not replace what is there
		return MayWrite(to, false)
	} else if err != nil {
		return WriteError(to, err)
	}
	return disk.SyncDir(filepath.Dir(to))
}
