package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/internal/sys/lease"
	"berth/internal/sys/run"
)

// Orphan is a container on this machine, told by the scratch directory that is
// mounted in it.
type Orphan struct {
	Mark  string // the first part of what [NewScratch] was told to call it
	PID   int    // the first process of its PID namespace
	Start string // by which that is told from a later one
}

// Orphans finds the containers of this user whose scratch directory has one of
// these marks. The directory itself may be gone: its name stays in the table of
// mounts. What runs outside of a PID namespace is not found.
func Orphans(wanted func(mark string) bool) (found []Orphan) {
	self, ok := run.ReadProc(os.Getpid())
	if !ok {
		return nil
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		start := lease.StartTime(pid)
		p, ok := run.ReadProc(pid)
		if !ok || p.Zombie || p.UID != os.Getuid() || start == "" || start == lease.UnknownStart ||
			len(p.NSPID) != len(self.NSPID)+1 || p.NSPID[len(p.NSPID)-1] != 1 {
			continue
		}
		mark := scratchOf(pid)
		if mark == "" { // the kernel does not show the mounts of a program with more rights
			for _, c := range run.Below(pid) {
				if mark = scratchOf(c.PID); mark != "" {
					break
				}
			}
		}
		if mark != "" && wanted(mark) {
			found = append(found, Orphan{Mark: mark, PID: pid, Start: start})
		}
	}
	return found
}

// Kill ends the container: the kernel ends all that is in it with its first
// process. It tells whether that was still the one that was found.
func (o Orphan) Kill() bool {
	return run.KillSame(o.PID, func() bool { return lease.StartTime(o.PID) == o.Start })
}

// scratchOf is the mark of the scratch directory that a process has mounted, or
// "".
func scratchOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return ""
	}
	prefix := fmt.Sprintf("berth-%d-", os.Getuid())
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		for part := range strings.SplitSeq(f[3], "/") { // where in its file system the mount begins
			if rest, ours := strings.CutPrefix(part, prefix); ours {
				if mark, _, more := strings.Cut(rest, "-"); more {
					return mark
				}
			}
		}
	}
	return ""
}
