package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/jobs"
)

// fileBegun stands in the directory of an overlay while a verb fills it, before
// it has its mark.
const fileBegun = ".new-begun"

// lostMark refuses an overlay that was used and has no mark. It is not half
// made: its mark was removed, as some sites remove old files. To create it
// again silently would lose its files.
func lostMark(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, fileBegun)); err == nil {
		return nil
	}
	if !worked(dir) {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("overlay %s has files, but its mark %s is gone", nameOf(dir), filepath.Join(dir, fileMark)),
		Hint: "some sites remove old files; restore the mark from a backup, or start from the beginning: berth overlay rm " + nameOf(dir)}
}

// worked tells whether a container has had the layer in dir, or a verb one that
// was complete: what it has made of that is worth as much.
func worked(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, dirRestored)); err == nil || len(attempts(dir)) > 0 {
		return true
	}
	for _, s := range startingWith(filepath.Join(dir, dirSnapshots), "") {
		if !strings.HasPrefix(filepath.Base(s), prefixTemp) {
			return true
		}
	}
	if in, err := os.ReadDir(filepath.Join(dir, dirLayer, "upper")); err == nil && len(in) > 0 || errors.Is(err, fs.ErrPermission) {
		return true
	}
	b, err := superblock(filepath.Join(dir, fileImage))
	return err == nil && le.Uint32(b[offsetMounted:]) != 0
}

// freshen shows whoever removes old files that an overlay's mark is in use. It
// is the one file of an overlay that no use of it writes.
func freshen(dir string) {
	_ = os.Remove(filepath.Join(dir, fileBegun)) // of a verb that was killed at its end
	path := filepath.Join(dir, fileMark)
	if fi, err := os.Lstat(path); err == nil && time.Since(fi.ModTime()) > 24*time.Hour {
		now := time.Now()
		_ = os.Chtimes(path, now, now)
	}
}
