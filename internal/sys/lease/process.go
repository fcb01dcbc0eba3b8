package lease

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is a process of some host, as it described itself.
type Process struct {
	Host   string `json:"host"`
	BootID string `json:"boot_id"` // [BootID]
	PID    int    `json:"pid"`
	Start  string `json:"start,omitempty"` // [StartTime]; "" is not known
}

// Self describes this process.
func Self() Process {
	host, _ := os.Hostname()
	return Process{Host: host, BootID: BootID(), PID: os.Getpid(), Start: StartTime(os.Getpid())}
}

// Near tells whether process numbers mean the same to both: of one boot of one
// host and one PID namespace.
func (p Process) Near(me Process) bool {
	return p.Host == me.Host && p.BootID == me.BootID && p.BootID != ""
}

// Gone tells whether the process was of my host and is no more: of another
// boot, or with no such process any more where its number means what it means
// here.
func (p Process) Gone(me Process) bool {
	if p.PID <= 0 || p.BootID == "" || me.BootID == "" || p.Host == "" || p.Host != me.Host {
		return false
	}
	boot, _, _ := strings.Cut(p.BootID, "/")
	now, _, _ := strings.Cut(me.BootID, "/")
	if boot != now {
		return true
	}
	return p.BootID == me.BootID && !p.lives()
}

// lives tells whether a process near this one may still be there.
func (p Process) lives() bool {
	at := StartTime(p.PID)
	switch at {
	case "":
		return false
	case UnknownStart, p.Start:
		return true
	}
	return p.Start == ""
}

// BootID names this boot of this machine and, behind a slash, this process's
// PID namespace: a process of its own namespace does not see the processes of
// the next one, and would take every number for that of a process that is
// gone. It is "" where either cannot be told.
func BootID() string {
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

// UnknownStart is the start time of a process that may or may not be there.
const UnknownStart = "?"

// StartTime is field 22 of /proc/PID/stat (proc(5)), in clock ticks since
// boot, which tells a process from a later one with the same number; "" when
// there is no such process, or only its zombie. A first thread that has ended
// looks like one while others go on, and so does that of a process that
// becomes another program, execve(2), for as long as that takes.
func StartTime(pid int) string {
	for range 3 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return ""
			}
			return UnknownStart
		}
		if state, threads, start, ok := parseStat(string(b)); ok && (state != "Z" && state != "X" || threads > 1) {
			return start
		} else if !ok || state == "Z" {
			return ""
		}
		// What is just being taken away: another look tells what is there now.
	}
	return UnknownStart
}

// exiting is the kernel's PF_EXITING in field 9 of /proc/PID/stat: a thread has
// it before it closes its files, and is a zombie only after that.
const exiting = 0x4

// Exiting tells whether every thread of a process is on its way out: what it
// held is closed, or will be, although the process is still there.
func Exiting(pid int) bool {
look:
	for range 3 {
		dir := fmt.Sprintf("/proc/%d/task", pid)
		threads, err := os.ReadDir(dir)
		if err != nil || len(threads) == 0 {
			return false
		}
		for _, t := range threads {
			b, err := os.ReadFile(filepath.Join(dir, t.Name(), "stat"))
			if err != nil {
				continue look // it has gone: another look tells what is there now
			}
			f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
			if len(f) < 7 {
				return false
			}
			if flags, err := strconv.ParseUint(f[6], 10, 64); err != nil || flags&exiting == 0 {
				return false
			}
		}
		return true
	}
	return false
}

// parseStat reads fields 3, 20 and 22; the second field, the program's name, may
// hold blanks and parentheses.
func parseStat(s string) (state string, threads int, start string, ok bool) {
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 20 {
		return "", 0, "", false
	}
	threads, err := strconv.Atoi(f[17])
	return f[0], threads, f[19], err == nil
}
