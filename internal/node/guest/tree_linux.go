package guest

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// proc is a process as /proc shows it. Its start time tells it from a later
// process with the same number.
type proc struct {
	pid, ppid, group, session int
	start                     uint64
	zombie                    bool
}

// id is what tells one process from all others.
func (p proc) id() proc { return proc{pid: p.pid, start: p.start} }

// readProc reads /proc/PID/stat, see proc(5).
func readProc(pid int) (proc, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	// The name is in parentheses and may hold any character, these too.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return proc{}, false
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 {
		return proc{}, false
	}
	// Where only the first thread has ended, the others go on.
	threads, _ := strconv.Atoi(string(f[17]))
	p := proc{pid: pid, zombie: (f[0][0] == 'Z' || f[0][0] == 'X') && threads <= 1}
	p.ppid, _ = strconv.Atoi(string(f[1]))
	p.group, _ = strconv.Atoi(string(f[2]))
	p.session, _ = strconv.Atoi(string(f[3]))
	p.start, err = strconv.ParseUint(string(f[19]), 10, 64)
	return p, err == nil
}

// processes lists all processes that can be seen.
func processes() []proc {
	all, _ := survey()
	return all
}

// survey lists all processes that can be seen, and the numbers of those that ended
// between the list and the look at them: what they started meanwhile is in neither.
func survey() (all []proc, gone []int) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, nil
	}
	defer func() { _ = d.Close() }()
	names, _ := d.Readdirnames(-1)
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			if p, ok := readProc(pid); ok {
				all = append(all, p)
			} else {
				gone = append(gone, pid)
			}
		}
	}
	return all, gone
}

// below picks the processes that descend from one of roots, without these.
func below(all []proc, roots ...int) []proc {
	children := map[int][]proc{}
	for _, p := range all {
		children[p.ppid] = append(children[p.ppid], p)
	}
	var out []proc
	seen := map[int]bool{}
	for _, r := range roots {
		seen[r] = true
	}
	for len(roots) > 0 {
		for _, p := range children[roots[0]] {
			if !seen[p.pid] {
				seen[p.pid] = true
				out = append(out, p)
				roots = append(roots, p.pid)
			}
		}
		roots = roots[1:]
	}
	return out
}

// signalProc signals exactly this process, or none.
func signalProc(p proc, sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		// Before Linux 5.3, or forbidden by a container's filter. The number
		// was read a moment ago.
		if err != unix.ESRCH {
			if now, ok := readProc(p.pid); ok && now.start == p.start {
				_ = unix.Kill(p.pid, sig)
			}
		}
		return
	}
	defer func() { _ = unix.Close(fd) }()
	// The descriptor holds whoever has the number now: make sure it is p.
	if now, ok := readProc(p.pid); ok && now.start == p.start {
		if unix.PidfdSendSignal(fd, sig, nil, 0) == unix.ENOSYS {
			_ = unix.Kill(p.pid, sig)
		}
	}
}

// leastLooks is how often killTree looks before it takes a process for one that
// cannot be killed.
const leastLooks = 100

// emptyLooks is how often killTree looks again when it finds nothing, but something
// ended under its eyes that may have started what the look has missed.
const emptyLooks = 5

// mostBursts is how often killTree finds processes that were not there before until it takes
// them for a fork bomb: who dies there makes room for the next, and who stands still does not.
// So it stops them all before it kills any.
const mostBursts = 5

// mostStops is how many looks may go by so, because they can have each other go on.
const mostStops = 20

// killTree kills what pick chooses until nothing of it lives, because a tree
// may grow while it is read; wait bounds it, but for leastLooks: this process may
// have stood still until that was over. With everything, the PID
// namespace is the guest's own, and the kernel can kill all of it in one step
// that no fork escapes. It returns how many still live.
func killTree(everything bool, pick func(all []proc) []proc, wait time.Duration) (left int) {
	deadline := time.Now().Add(wait)
	killed, dead, stopped, others := map[proc]bool{}, map[proc]bool{}, map[proc]bool{}, map[int]bool{}
	for looks, empty, bursts, stops := 1, 0, 0, 0; ; looks++ {
		if everything {
			_ = unix.Kill(-1, unix.SIGKILL)
		}
		all, gone := survey()
		left = 0
		fresh, moving, stopping := false, false, bursts >= mostBursts && stops < mostStops
		var living []proc
		picked := map[int]bool{}
		for _, p := range pick(all) {
			picked[p.pid] = true
			if p.zombie {
				fresh = fresh || !dead[p.id()]
				dead[p.id()] = true
				continue
			}
			left++
			if stopping && !stopped[p.id()] {
				moving = true
				stopped[p.id()] = true
				signalProc(p, unix.SIGSTOP)
			}
			living = append(living, p)
		}
		if moving { // they may have forked since
			fresh, living = true, nil
			stops++
		}
		born := false
		for _, p := range living {
			born = born || !killed[p.id()]
			killed[p.id()] = true
			signalProc(p, unix.SIGKILL)
		}
		if born {
			fresh = true
			bursts++
		}
		// Who lived at the last look and was none of these, may end.
		for _, pid := range gone {
			fresh = fresh || !others[pid]
		}
		clear(others)
		for _, p := range all {
			others[p.pid] = !picked[p.pid]
		}
		empty++
		if left > 0 {
			empty = 0
		}
		switch {
		case left == 0 && (everything || !fresh || empty > emptyLooks), looks >= leastLooks && time.Now().After(deadline):
			return left
		case left > 0 && !fresh:
			time.Sleep(5 * time.Millisecond)
		}
	}
}
