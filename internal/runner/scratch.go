package runner

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

	"berth/internal/disk"
	"berth/jobs"
)

const fileOwner = ".owner.json"

// scratch is the attempt's directory on the node's own disk: /tmp and /var/tmp
// of the container, a throw-away overlay, the container program's session.
type scratch struct {
	dir string
}

// tmpfsMagic is TMPFS_MAGIC of statfs(2).
const tmpfsMagic = 0x01021994

// scratchBase chooses the directory: the profile's, then the site's $TMPDIR,
// then /tmp, unless that is in memory (it would count against the job) and
// /var/tmp is not.
func scratchBase(profile string, getenv func(string) string) (string, error) {
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

// newScratch makes the directory for an attempt, a new one in any case: mkdir
// refuses a name that exists. Others can read the attempt's part of the name in
// the queue and take it first; then random letters are added.
func newScratch(base, tail string, me jobs.Claim, attemptDir string) (*scratch, error) {
	dir := filepath.Join(base, fmt.Sprintf("berth-%d-%s", os.Getuid(), tail))
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		dir, err = os.MkdirTemp(base, filepath.Base(dir)+"-*")
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a scratch directory on the node", Err: err, Hint: `is there space left on ` + base + `? scratch = "..." in a profile names another place`}
	}
	b, err := json.Marshal(scratchOwner{Host: me.Host, BootID: me.BootID, PID: me.PID, Start: startTime(me.PID), Attempt: attemptDir})
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
	return &scratch{dir: dir}, nil
}

// workdir is what stands for {scratch}.
func (s *scratch) workdir() string { return filepath.Join(s.dir, "w") }

// conf is where the container program keeps its own files.
func (s *scratch) conf() string { return filepath.Join(s.dir, "apptainer") }

func (s *scratch) remove() error { return disk.RemoveTree(s.dir) }

// scratchOwner says whose a scratch directory is, so that one whose runner was
// killed can be told from one in use.
type scratchOwner struct {
	Host    string `json:"host"`
	BootID  string `json:"boot_id"` // [bootID]
	PID     int    `json:"pid"`
	Start   string `json:"start"` // the process's start time, in clock ticks since boot
	Attempt string `json:"attempt"`
}

// gone tells whether the runner was of this host and is no more: of another
// boot, or with no such process any more where its number means what it means
// here. base may be on a file system that other hosts have too.
func (o scratchOwner) gone(me jobs.Claim) bool {
	if o.PID <= 0 || o.BootID == "" || me.BootID == "" || o.Host == "" || o.Host != me.Host {
		return false
	}
	boot, _, _ := strings.Cut(o.BootID, "/")
	now, _, _ := strings.Cut(me.BootID, "/")
	if boot != now {
		return true
	}
	at := startTime(o.PID)
	return o.BootID == me.BootID && at != o.Start && at != unknownStart
}

// sweepScratch removes this user's directories below base whose runner is
// provably gone. One without a readable owner is left alone.
func sweepScratch(base string, me jobs.Claim) (removed []string) {
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
		if err != nil {
			continue
		}
		var o scratchOwner
		if json.Unmarshal(b, &o) != nil || !o.gone(me) {
			continue
		}
		if disk.RemoveTree(dir) == nil {
			removed = append(removed, dir)
		}
	}
	return removed
}

// bootID names this boot of this machine and, behind a slash, this process's
// PID namespace: a job of its own namespace does not see the processes of the
// next one, and would take every number for that of a process that is gone.
// It is "" where either cannot be told.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b)) + "/" + strings.Trim(ns, "pid:[]")
}

// unknownStart is the start time of a process that may or may not be there.
const unknownStart = "?"

// startTime is field 22 of /proc/PID/stat (proc(5)), which tells a process
// from a later one with the same number; "" when there is no such process.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		return unknownStart
	}
	s := string(b)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}
