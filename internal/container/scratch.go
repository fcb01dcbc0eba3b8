package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"berth/internal/disk"
	"berth/internal/lease"
	"berth/jobs"
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
			return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the profile's scratch directory " + dir + " is not on this node", Hint: `mend scratch = "..." in the profile`}
		}
		return dir, nil
	}
	if dir := getenv("TMPDIR"); filepath.IsAbs(dir) && usableBase(dir) {
		return dir, nil
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if usableBase(dir) && !inMemory(dir) {
			return dir, nil
		}
	}
	return "/tmp", nil
}

func usableBase(dir string) bool {
	fi, err := os.Stat(dir)
	return err == nil && fi.IsDir() && !strings.ContainsAny(dir, ":,")
}

func inMemory(dir string) bool {
	var st syscall.Statfs_t
	return syscall.Statfs(dir, &st) == nil && st.Type == tmpfsMagic
}

var varWord = regexp.MustCompile(`\$(\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*)`)

// expandVars replaces $NAME and ${NAME}, and nothing else that a shell would.
func expandVars(s string, getenv func(string) string) (string, error) {
	var missing string
	out := varWord.ReplaceAllStringFunc(s, func(w string) string {
		name := strings.Trim(w[1:], "{}")
		v := getenv(name)
		if v == "" && missing == "" {
			missing = name
		}
		return v
	})
	if missing != "" {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the profile's scratch names $" + missing + ", which is not set on this node", Hint: `mend scratch = "..." in the profile`}
	}
	if !filepath.IsAbs(out) || strings.ContainsAny(out, ":,") {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the profile's scratch directory " + out + " is not an absolute path without ':' and ','"}
	}
	return filepath.Clean(out), nil
}

// NewScratch makes the directory below base for the owner of forDir, a new one
// in any case: mkdir refuses a name that exists. Others can read the owner's
// part of the name, which is tail, and take it first; then random letters are
// added. Of one tail, one process at a time may call it.
func NewScratch(base, tail string, me lease.Process, forDir string) (*Scratch, error) {
	dir := filepath.Join(base, fmt.Sprintf("berth-%d-%s", os.Getuid(), tail))
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) && removeUnfinished(dir) {
		err = os.Mkdir(dir, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		dir, err = os.MkdirTemp(base, filepath.Base(dir)+"-*")
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a scratch directory on the node", Err: err, Hint: `is there space left on ` + base + `? scratch = "..." in a profile names another place`}
	}
	b, err := json.Marshal(scratchOwner{me, forDir})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fileOwner), b, 0o600)
	}
	for _, d := range []string{"w", "apptainer"} {
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, d), 0o700)
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a scratch directory on the node", Err: err, Hint: "is there space left on " + base + "?"}
	}
	return &Scratch{Dir: dir}, nil
}

// Workdir is what stands for {scratch}.
func (s *Scratch) Workdir() string { return filepath.Join(s.Dir, "w") }

// Conf is where the container program keeps its own files.
func (s *Scratch) Conf() string { return filepath.Join(s.Dir, "apptainer") }

// Remove removes it, whatever has been written there.
func (s *Scratch) Remove() error { return disk.RemoveTree(s.Dir) }

// scratchOwner says whose a scratch directory is, so that one whose owner was
// killed can be told from one in use.
type scratchOwner struct {
	lease.Process
	For string `json:"for"` // the directory of the attempt or the environment
}

// removeUnfinished removes a directory of this user whose maker was killed before
// it had said whose it is, so that nobody has used it.
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

// unfinishedFor is how old a directory without an owner is when nobody is about
// to write down whose it is.
const unfinishedFor = time.Hour

// SweepScratch removes this user's directories below base whose owner is
// provably gone, and returns them. One without a readable owner is left alone,
// unless it is old and empty.
func SweepScratch(base string, me lease.Process) (removed []string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil
	}
	prefix := fmt.Sprintf("berth-%d-", os.Getuid())
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
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
			if time.Since(fi.ModTime()) > unfinishedFor && removeUnfinished(dir) {
				removed = append(removed, dir)
			}
			continue
		}
		var o scratchOwner
		if json.Unmarshal(b, &o) != nil || !o.Gone(me) {
			continue
		}
		if disk.RemoveTree(dir) == nil {
			removed = append(removed, dir)
		}
	}
	return removed
}
