package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/sys/lease"
	"berth/internal/sys/private"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

const fileOwner = ".owner.json"

// Scratch is the directory of an attempt or a keeper on the node's own disk: /tmp and /var/tmp
// of the container, a throw-away overlay, the container program's session.
type Scratch struct {
	Dir string
}

// tmpfsMagic is TMPFS_MAGIC of statfs(2).
const tmpfsMagic = 0x01021994

// ScratchBase chooses the directory: the profile's, then the site's $TMPDIR,
// then /tmp, unless that is in memory (it would count against the job) and
// /var/tmp is not.
func ScratchBase(profile string, getenv func(string) string) (string, error) {
	if profile != "" {
		dir, err := expandVars(profile, getenv)
		if err != nil {
			return "", err
		}
		if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
			return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the profile's scratch directory " + dir + " is not on this node",
				Hint: `change scratch = "..." in the profile`}
		}
		return dir, nil
	}
	if dir := getenv("TMPDIR"); filepath.IsAbs(dir) && usableBase(dir) {
		return dir, nil
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if usableBase(dir) && !InMemory(dir) {
			return dir, nil
		}
	}
	return "/tmp", nil
}

func usableBase(dir string) bool {
	fi, err := os.Stat(dir)
	return err == nil && fi.IsDir() && !strings.ContainsAny(dir, ":,")
}

// InMemory tells whether what is in a directory takes memory, and no disk.
func InMemory(dir string) bool {
	var st syscall.Statfs_t
	return syscall.Statfs(dir, &st) == nil && st.Type == tmpfsMagic
}

// expandVars replaces $NAME and ${NAME}, and nothing else that a shell would.
func expandVars(s string, getenv func(string) string) (string, error) {
	out, missing := jobs.Expand(s, getenv)
	if missing != "" {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the profile's scratch names $" + missing + ", which is not set on this node",
			Hint: `change scratch = "..." in the profile`}
	}
	if !filepath.IsAbs(out) || strings.ContainsAny(out, ":,") {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the profile's scratch directory " + out + " is not an absolute path without ':' and ','"}
	}
	return filepath.Clean(out), nil
}

// NewScratch makes the directory below base for the owner of forDir, with a name
// that cannot be foreseen: the owner's part of it, tail, is public, as the name of
// a job in its scheduler is. A name that exists, be it a link that another user has
// planted, is not used (mkdir(2)). A base in which all users may rename everything
// is refused: another user could put a directory in place of this one.
func NewScratch(base, tail string, me lease.Process, forDir string) (*Scratch, error) {
	if fi, err := os.Stat(base); err == nil && fi.Mode().Perm()&0o002 != 0 && fi.Mode()&fs.ModeSticky == 0 {
		return nil, &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "everybody may replace what is in the scratch directory " + base + ": it lacks the sticky bit",
			Hint: `name another one, scratch = "..." in a profile, or ask the site: chmod +t ` + base}
	}
	dir, err := makeIn(base, scratchName(tail)+"*")
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a scratch directory on the node", Err: err,
			Hint: `is there space left on ` + base + `? scratch = "..." in a profile names another place`}
	}
	b, err := json.Marshal(scratchOwner{me, forDir})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fileOwner), b, 0o600)
	}
	if err == nil {
		err = makeScratch(dir)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a scratch directory on the node", Err: err,
			Hint: "is there space left on " + base + "?"}
	}
	return &Scratch{Dir: dir}, nil
}

// makeIn makes a directory below base, or where containers that see base do not see
// it: there from when the first of them was begun.
func makeIn(base, pattern string) (string, error) {
	for {
		in, hidden := private.FindOwn(base, private.DirOf(private.Scratch))
		if !hidden {
			in = base
		}
		dir, err := os.MkdirTemp(in, pattern)
		if err != nil || hidden {
			return dir, err
		}
		if _, begun := private.FindOwn(base, private.DirOf(private.Scratch)); !begun {
			return dir, nil
		}
		if err := os.Remove(dir); err != nil {
			return "", err
		}
	}
}

// dirProgram is where the container program keeps its own files.
const dirProgram = "program"

func makeScratch(dir string) error {
	for _, d := range []string{"w", dirProgram, "empty"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// Another makes one more below it, with nothing of the first one's in it; it goes
// with that.
func (s *Scratch) Another(name string) (*Scratch, error) {
	dir := filepath.Join(s.Dir, name)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = makeScratch(dir)
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a scratch directory on the node", Err: err,
			Hint: "is there space left on " + s.Dir + "?"}
	}
	return &Scratch{Dir: dir}, nil
}

// Workdir is what stands for {scratch}.
func (s *Scratch) Workdir() string { return filepath.Join(s.Dir, "w") }

// Conf is where the container program keeps its own files.
func (s *Scratch) Conf() string { return filepath.Join(s.Dir, dirProgram) }

// Remove removes it, whatever has been written there.
func (s *Scratch) Remove() error { return removeScratch(s.Dir, removeFiles) }

func removeFiles(path string) error {
	return run.RemoveFiles(context.Background(), run.Local{}, path)
}

// removeScratch removes a scratch directory, what is in it by remove. Its owner's mark goes last, and stays
// where something else does: what cannot be removed now, since a program that its
// owner has left behind still writes there, is known to the next one who sweeps.
func removeScratch(dir string, remove func(path string) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != fileOwner {
			err = errors.Join(err, remove(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	owner := filepath.Join(dir, fileOwner)
	mark, merr := os.ReadFile(owner)
	if err := os.Remove(owner); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err = os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if merr == nil {
		err = errors.Join(err, os.WriteFile(owner, mark, 0o600))
	}
	return err
}

// scratchOwner says whose a scratch directory is, so that one whose owner was
// killed can be told from one in use.
type scratchOwner struct {
	lease.Process
	For string `json:"for"` // the directory of the attempt or the environment
}

// removeUnfinished removes a directory of this user whose maker was killed before
// it had said whose it is, so that it was never used.
func removeUnfinished(dir string) bool {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() {
		return false
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
		return false
	}
	if b, err := os.ReadFile(filepath.Join(dir, fileOwner)); err == nil && len(b) == 0 {
		_ = os.Remove(filepath.Join(dir, fileOwner))
	}
	return os.Remove(dir) == nil // which takes only an empty one
}

// unfinishedFor is how old a directory without an owner is when no maker is still
// about to write down whose it is.
const unfinishedFor = time.Hour

// SweepScratch removes this user's directories below base whose owner is
// provably gone, and returns them; the work tree of an attempt that has no end
// recorded is first copied into the attempt's directory, and one where that fails
// stays, and is not tried again within [rescueAgain]. One without a readable owner
// is left alone, unless it is old and empty.
func SweepScratch(ctx context.Context, base string, me lease.Process) (removed []string) {
	ctx, cancel := context.WithTimeout(ctx, rescueTime)
	defer cancel()
	for _, dir := range AbandonedScratch(base, me) {
		if fi, err := os.Lstat(filepath.Join(dir, fileTried)); err == nil && time.Since(fi.ModTime()).Abs() < rescueAgain {
			continue
		}
		if RemoveAbandoned(ctx, dir) == nil {
			removed = append(removed, dir)
		}
	}
	return removed
}

// SweepUnfinished removes the empty directories below base that were begun with
// this tail, see [NewScratch], and returns them. It is for a maker who knows that
// no other process works with that tail: the makers were killed before they had
// written down whose the directories are.
func SweepUnfinished(base, tail string) (removed []string) {
	for _, in := range private.ScratchPlaces(base) {
		entries, err := os.ReadDir(in)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if dir := filepath.Join(in, e.Name()); strings.HasPrefix(e.Name(), scratchName(tail)) && removeUnfinished(dir) {
				removed = append(removed, dir)
			}
		}
	}
	return removed
}

// scratchName is what a directory's name begins with.
func scratchName(tail string) string { return fmt.Sprintf("berth-%d-%s-", os.Getuid(), tail) }

// RemoveAbandoned removes a directory that [AbandonedScratch] has found. An error
// says what is still there.
func RemoveAbandoned(ctx context.Context, dir string) error {
	// Two that do this at once would take from each other what they copy.
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("another process is removing it")
	} // without locks there: as well as it goes
	b, err := os.ReadFile(filepath.Join(dir, fileOwner))
	if err != nil || len(b) == 0 {
		if !removeUnfinished(dir) {
			return errors.New("it names no owner, and is not empty")
		}
		return nil
	}
	if err := rescue(ctx, dir, b); err != nil {
		// Not tried again by everybody who begins something here.
		_ = os.WriteFile(filepath.Join(dir, fileTried), nil, 0o600)
		return fmt.Errorf("the task's files in it could not be brought into the attempt's directory: %w", err)
	}
	return removeScratch(dir, removeFiles)
}

// Who begins something on a machine brings what killed runners have left there,
// for at most rescueTime, and not again within rescueAgain: `berth gc` takes the time
// that it needs. fileTried has the time of the last try.
const (
	rescueTime  = time.Minute
	rescueAgain = time.Hour
	fileTried   = ".tried"
)

// rescue brings the work tree of a killed runner into its attempt's directory,
// unless the attempt has come to its end: there is no other copy. An attempt that is
// not there any more wants nothing. The mark is believed only where the attempt says
// the same: a task that can write here could have made it.
func rescue(ctx context.Context, dir string, mark []byte) error {
	var o scratchOwner
	work := filepath.Join(dir, workspace.WorkDir)
	if json.Unmarshal(mark, &o) != nil || !filepath.IsAbs(o.For) || store.HasExit(o.For) {
		return nil
	}
	// Under another name until all of it is there: a part is not to pass for a tree
	// that was kept.
	to := filepath.Join(o.For, workspace.WorkDir)
	rescued := to + ".rescued"
	_, err := os.Lstat(work)
	nothing := errors.Is(err, fs.ErrNotExist)
	if _, err := os.Lstat(rescued); nothing && err != nil {
		return nil
	}
	if _, err := os.Lstat(o.For); errors.Is(err, fs.ErrNotExist) {
		// Is only that gone, or the whole file system?
		_, err = os.Lstat(store.HomeOf(store.JobDirOf(o.For)))
		return err
	} else if err != nil {
		return err
	}
	switch c, err := store.ClaimOf(o.For); {
	case err != nil:
		return err
	case o.Process != lease.Process{Host: c.Host, BootID: c.BootID, PID: c.PID, Start: c.Start}:
		return errors.New("they are said to be of " + o.For + ", which another process had")
	}
	if !nothing {
		k, err := workspace.Keep(ctx, work, rescued)
		if err == nil && k.Lost > 0 && !k.Moved {
			err = fmt.Errorf("%d paths of it could not be copied", k.Lost)
			if len(k.Skipped) > 0 {
				err = fmt.Errorf("%w, as %s: %s", err, k.Skipped[0].Path.Printable(), k.Skipped[0].Reason)
			}
		}
		if err != nil {
			return err
		}
	}
	if err := run.RemoveFiles(ctx, run.Local{}, to); err != nil { // half a copy that its runner was making
		return err
	}
	return os.Rename(rescued, to)
}

// AbandonedScratch finds what [SweepScratch] removes.
func AbandonedScratch(base string, me lease.Process) (found []string) {
	for _, in := range private.ScratchPlaces(base) {
		found = append(found, abandonedIn(in, me)...)
	}
	return found
}

func abandonedIn(base string, me lease.Process) (found []string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil
	}
	prefix := fmt.Sprintf("berth-%d-", os.Getuid())
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) || private.Lasting(e.Name()) {
			continue
		}
		dir := filepath.Join(base, e.Name())
		fi, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, fileOwner))
		if err != nil || len(b) == 0 {
			left, err := os.ReadDir(dir)
			bare := len(left) == 0 || len(left) == 1 && left[0].Name() == fileOwner
			if err == nil && bare && time.Since(fi.ModTime()) > unfinishedFor {
				found = append(found, dir)
			}
			continue
		}
		var o scratchOwner
		if json.Unmarshal(b, &o) == nil && o.Gone(me) {
			found = append(found, dir)
		}
	}
	return found
}
