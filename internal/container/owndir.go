package container

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

// LastingBase chooses the directory of a node for what several jobs of a user
// share: as [ScratchBase] does, but rather /tmp or /var/tmp than a $TMPDIR that
// the site makes for one job. jobID is that of the scheduler, or "". lasting
// tells whether later jobs will find there what this one leaves.
func LastingBase(profile string, getenv func(string) string, jobID string) (base string, lasting bool, err error) {
	if base, err = ScratchBase(profile, getenv); err != nil {
		return "", false, err
	}
	if !ofOneJob(base, jobID) {
		return base, true, nil
	}
	if profile != "" {
		return base, false, nil
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if usableBase(dir) && !InMemory(dir) && !ofOneJob(dir, jobID) {
			return dir, true, nil
		}
	}
	return base, false, nil
}

// ofOneJob tells whether a directory is a job's own: its path, or what is
// mounted there (Slurm's job_container/tmpfs mounts a directory of the job at
// /tmp), has the job's number in it: "/local/slurm.1234", "/tmp/1234/.1234".
func ofOneJob(dir, jobID string) bool {
	if jobID == "" {
		return false
	}
	named := func(path string) bool {
		for part := range strings.SplitSeq(path, "/") {
			for word := range strings.FieldsFuncSeq(part, func(r rune) bool { return strings.ContainsRune("._-", r) }) {
				if word == jobID {
					return true
				}
			}
		}
		return false
	}
	if named(dir) {
		return true
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		// "36 35 98:0 /mnt1 /mnt2 rw,noatime ...": proc(5).
		if f := strings.Fields(line); len(f) > 4 && f[4] == dir && named(f[3]) {
			return true
		}
	}
	return false
}

// OwnDir finds or makes a directory below base that is this user's alone: of
// mode 0700, and no symbolic link. base may be one where everybody writes:
// where somebody else has taken the name first, random letters follow it, and
// the next caller finds that one.
func OwnDir(base, name string) (string, error) {
	if fi, err := os.Stat(base); err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "look at " + base, Err: err}
	} else if fi.Mode().Perm()&0o002 != 0 && fi.Mode()&os.ModeSticky == 0 {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "everybody may rename what stands in " + base + ": it is not sticky", Hint: `scratch = "..." in a profile names another place; or chmod +t ` + base}
	}
	dir := filepath.Join(base, name)
	err := os.Mkdir(dir, 0o700)
	if err == nil || own(dir) {
		return dir, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory on the node", Err: err, Hint: "is there space left on " + base + "?"}
	}
	if others, err := filepath.Glob(dir + "-*"); err == nil {
		for _, d := range others {
			if own(d) {
				return d, nil
			}
		}
	}
	if dir, err = os.MkdirTemp(base, name+"-*"); err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory on the node", Err: err, Hint: "is there space left on " + base + "?"}
	}
	return dir, nil
}

// own tells whether dir is a directory that nobody but this user can write to
// or look into.
func own(dir string) bool {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() || fi.Mode().Perm() != 0o700 {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

// DirOf is the name of a directory of this user's below a base that everybody
// may write to; [SweepScratch] leaves alone those without an owner's mark.
func DirOf(what string) string { return fmt.Sprintf("berth-%d-%s", os.Getuid(), what) }
