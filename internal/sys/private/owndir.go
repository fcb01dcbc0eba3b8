package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"berth/jobs"
)

// OwnDir finds or makes a directory below base that is this user's alone: of
// mode 0700, and no symbolic link. base may be one where everybody writes:
// where another user has taken the name first, random letters follow it, and
// the next caller finds that one.
func OwnDir(base, name string) (string, error) {
	if fi, err := os.Stat(base); err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "look at " + base, Err: err}
	} else if fi.Mode().Perm()&0o002 != 0 && fi.Mode()&os.ModeSticky == 0 {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "everybody may rename what stands in " + base + ": it is not sticky",
			Hint: `scratch = "..." in a profile names another place; or chmod +t ` + base}
	}
	dir := filepath.Join(base, name)
	err := os.Mkdir(dir, 0o700)
	if err == nil || own(dir) {
		return dir, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory on the node", Err: err, Hint: "is there space left on " + base + "?"}
	}
	if d, ok := FindOwn(base, name); ok {
		return d, nil
	}
	if dir, err = os.MkdirTemp(base, name+"-*"); err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory on the node", Err: err, Hint: "is there space left on " + base + "?"}
	}
	return dir, nil
}

// FindOwn finds what [OwnDir] has made.
func FindOwn(base, name string) (dir string, ok bool) {
	dir = filepath.Join(base, name)
	if own(dir) {
		return dir, true
	}
	others, _ := filepath.Glob(dir + "-*")
	for _, d := range others {
		if own(d) {
			return d, true
		}
	}
	return "", false
}

// own tells whether dir is a directory that only this user can write to
// or look into.
func own(dir string) bool {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() || fi.Mode().Perm() != 0o700 {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

// What stands below a base for as long as the machine does, so that it can be
// hidden before something is in it.
const (
	Images  = "images"  // unpacked images
	Scratch = "scratch" // scratch directories, where a container sees the base
)

// Lasting tells whether a name below a base is that of [Images] or [Scratch].
func Lasting(name string) bool {
	for _, what := range []string{Images, Scratch} {
		if rest, ok := strings.CutPrefix(name, DirOf(what)); ok && (rest == "" || rest[0] == '-') {
			return true
		}
	}
	return false
}

// ScratchPlaces are the directories that have the scratch directories of a base.
func ScratchPlaces(base string) []string {
	if dir, ok := FindOwn(base, DirOf(Scratch)); ok {
		return []string{base, dir}
	}
	return []string{base}
}

// BaseOf is the base that a scratch directory was made for: it stands there, or in
// one of [ScratchPlaces].
func BaseOf(scratch string) string {
	base := filepath.Dir(scratch)
	if Lasting(filepath.Base(base)) {
		return filepath.Dir(base)
	}
	return base
}

// DirOf is the name of a directory of this user's below a base that everybody
// may write to; the sweepers of scratch directories leave alone those without an owner's mark.
func DirOf(what string) string { return fmt.Sprintf("berth-%d-%s", os.Getuid(), what) }
