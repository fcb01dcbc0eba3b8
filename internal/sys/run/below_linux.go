package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Proc is a process as /proc shows it (proc(5)).
type Proc struct {
	PID, PPID int
	UID       int   // the real one
	NSPID     []int // its number in each PID namespace, outermost first
	Zombie    bool
	Stopped   bool  // by a signal
	RSS       int64 // bytes
	Name      string
}

// Below lists the processes below root. Orphans come to the next child
// subreaper above, so one that is a root sees these too.
func Below(root int) []Proc {
	return below(root, func(Proc) bool { return true })
}

// below leaves out those that are not wanted, and all below them.
func below(root int, wanted func(Proc) bool) []Proc {
	all := map[int][]Proc{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if p, ok := ReadProc(pid); ok {
			all[p.PPID] = append(all[p.PPID], p)
		}
	}
	var out []Proc
	queue := []int{root}
	for len(queue) > 0 {
		for _, p := range all[queue[0]] {
			if wanted(p) {
				out = append(out, p)
				queue = append(queue, p.PID)
			}
		}
		queue = queue[1:]
	}
	return out
}

// ReadProc reads one of them; false is that it is gone.
func ReadProc(pid int) (Proc, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return Proc{}, false
	}
	p := Proc{PID: pid}
	for line := range strings.Lines(string(b)) {
		key, val, _ := strings.Cut(line, ":")
		switch key {
		case "State":
			state := strings.TrimSpace(val)
			p.Zombie = strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
			p.Stopped = strings.HasPrefix(state, "T")
		case "Threads": // behind the state
			n, _ := strconv.Atoi(strings.TrimSpace(val))
			p.Zombie = p.Zombie && n <= 1 // where only the first one has ended, the others go on
		case "Name":
			p.Name = strings.TrimSpace(val)
		case "Uid":
			if p.UID = -1; len(strings.Fields(val)) > 0 {
				p.UID, _ = strconv.Atoi(strings.Fields(val)[0])
			}
		case "PPid":
			p.PPID, _ = strconv.Atoi(strings.TrimSpace(val))
		case "VmRSS":
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(val), " kB"), 10, 64)
			p.RSS = kib * 1024
		case "NSpid":
			for f := range strings.FieldsSeq(val) {
				n, _ := strconv.Atoi(f)
				p.NSPID = append(p.NSPID, n)
			}
		}
	}
	return p, true
}

// KillSame sends SIGKILL through a pidfd, if same says that it holds the
// process that is meant.
func KillSame(pid int, same func() bool) bool {
	h, ok := hold(pid, same)
	if !ok {
		return false
	}
	defer h.release()
	return h.signal(unix.SIGKILL)
}

// held is a process that cannot be taken for a later one with its number.
type held struct {
	pid int
	fd  int // pidfd, or -1 on Linux before 5.3, which has no pidfd_open(2)
}

func hold(pid int, same func() bool) (held, bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return held{pid, -1}, err == unix.ENOSYS && same()
	}
	if !same() {
		_ = unix.Close(fd)
		return held{}, false
	}
	return held{pid, fd}, true
}

func (h held) signal(sig unix.Signal) bool {
	if h.fd < 0 {
		return unix.Kill(h.pid, sig) == nil
	}
	return unix.PidfdSendSignal(h.fd, sig, nil, 0) == nil
}

func (h held) release() {
	if h.fd >= 0 {
		_ = unix.Close(h.fd)
	}
}
