package container

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/lease"

	"golang.org/x/sys/unix"
)

// proc is a process as /proc shows it.
type proc struct {
	pid, ppid int
	nspid     []int // its number in each PID namespace, outermost first
	zombie    bool
	rss       int64 // bytes
	name      string
}

// descendants lists the processes below root, which sees them because it is a
// child subreaper: an orphan's new parent is the root.
func descendants(root int) []proc {
	all := map[int][]proc{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if p, ok := readProc(pid); ok {
			all[p.ppid] = append(all[p.ppid], p)
		}
	}
	var out []proc
	queue := []int{root}
	for len(queue) > 0 {
		for _, p := range all[queue[0]] {
			out = append(out, p)
			queue = append(queue, p.pid)
		}
		queue = queue[1:]
	}
	return out
}

func readProc(pid int) (proc, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return proc{}, false
	}
	p := proc{pid: pid}
	for line := range strings.Lines(string(b)) {
		key, val, _ := strings.Cut(line, ":")
		switch key {
		case "State":
			p.zombie = strings.HasPrefix(strings.TrimSpace(val), "Z")
		case "Name":
			p.name = strings.TrimSpace(val)
		case "PPid":
			p.ppid, _ = strconv.Atoi(strings.TrimSpace(val))
		case "VmRSS":
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(val), " kB"), 10, 64)
			p.rss = kib * 1024
		case "NSpid":
			for f := range strings.FieldsSeq(val) {
				n, _ := strconv.Atoi(f)
				p.nspid = append(p.nspid, n)
			}
		}
	}
	return p, true
}

// KillContainer kills the init of the container's PID namespace: the kernel
// then kills all that is in it, setsid or not, and the container program's own
// parent process lives on to unmount. Killing that parent instead would leave
// its FUSE helpers behind. Found by its namespace, because its name differs
// between versions.
func KillContainer(self int) (killed int) {
	for _, p := range descendants(self) {
		if n := len(p.nspid); n >= 2 && p.nspid[n-1] == 1 && !p.zombie {
			if kill(p.pid, p.ppid) {
				killed++
			}
		}
	}
	return killed
}

// KillAll kills everything below self until nothing is left, or time is up.
// It is for a place without a PID namespace, and for what a container program
// has left behind.
func KillAll(self int, within time.Duration) (left int) {
	deadline := time.Now().Add(within)
	for {
		left = 0
		for _, p := range descendants(self) {
			if p.zombie {
				continue
			}
			left++
			kill(p.pid, p.ppid)
		}
		if left == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// kill sends SIGKILL, after making sure that the number still belongs to the
// process that was seen.
func kill(pid, ppid int) bool {
	return killSame(pid, func() bool {
		p, ok := readProc(pid)
		return ok && p.ppid == ppid
	})
}

// killSame sends SIGKILL through a pidfd, if same says that it holds the
// process that is meant.
func killSame(pid int, same func() bool) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		// Linux before 5.3 has no pidfd_open(2).
		if err == unix.ENOSYS && same() {
			return unix.Kill(pid, unix.SIGKILL) == nil
		}
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return same() && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// Pids lists the processes below root which are no zombies.
func Pids(root int) (out []int) {
	for _, p := range descendants(root) {
		if !p.zombie {
			out = append(out, p.pid)
		}
	}
	return out
}

// KillLeft ends processes of a container whose owner is gone, and all below
// them. With gently it is at first only what runs in their PID namespaces, if
// there are any, so that the container program can unmount.
func KillLeft(pids []int, gently bool) {
	inside := 0
	for _, pid := range pids {
		inside += KillContainer(pid)
	}
	if gently && inside > 0 {
		return
	}
	for _, pid := range pids {
		below := descendants(pid)
		if p, ok := readProc(pid); ok {
			kill(p.pid, p.ppid)
		}
		for _, c := range below {
			start := lease.StartTime(c.pid)
			killSame(c.pid, func() bool { return lease.StartTime(c.pid) == start })
		}
	}
}
