package guest

import (
	"bytes"
	"crypto/rand"
	"os"
	"strconv"
	"syscall"
	"time"

	"berth/internal/guest/wire"

	"golang.org/x/sys/unix"
)

// newMark makes a command's mark.
func newMark() string { return "BERTH_COMMAND=" + rand.Text()[:12] }

// main returns the main process, or 0 before it runs.
func (c *command) main() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// signal delivers a signal to the main process' group, or to every process of
// the command.
func (c *command) signal(m wire.SignalMessage) {
	pid, sig := c.main(), syscall.Signal(m.Signal)
	if pid == 0 || m.Signal <= 0 {
		return
	}
	if m.Scope != wire.ScopeTree {
		_ = c.s.reaper.signalGroup(pid, sig)
		return
	}
	for _, p := range c.tree(processes()) {
		signalProc(p, sig)
	}
}

// terminate ends the command and everything that it has started.
func (c *command) terminate(grace time.Duration) {
	// What belongs to the command is best seen while its main process lives.
	known := map[proc]bool{}
	for _, p := range c.tree(processes()) {
		known[proc{pid: p.pid, start: p.start}] = true
	}
	c.endMain(grace)
	// Not by the whole namespace: another command may begin at any moment.
	killTree(false, func(all []proc) []proc {
		if c.alone() {
			return below(all, os.Getpid())
		}
		return c.tree(all, known)
	}, killWait)
}

// endMain ends the main process, or keeps it from starting: TERM to its group,
// KILL after grace. CONT follows TERM, because a stopped process takes a signal
// only when it goes on.
func (c *command) endMain(grace time.Duration) {
	c.mu.Lock()
	c.stopped = true
	pid := c.pid
	c.mu.Unlock()
	if pid == 0 {
		return
	}
	if grace > 0 {
		_ = c.s.reaper.signalGroup(pid, unix.SIGTERM, unix.SIGCONT)
		select {
		case <-c.ended:
			return
		case <-time.After(grace):
		}
	}
	_ = c.s.reaper.signalGroup(pid, unix.SIGKILL)
}

// alone tells whether no other command is under way. Then everything below the
// guest is of this command, or was left behind by an earlier one.
func (c *command) alone() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, o := range c.s.commands {
		if o != c {
			return false
		}
	}
	return true
}

// tree picks the command's processes: its main one, the members of its Unix
// session, orphans that carry its mark, those known from before, and what
// descends from them. A process can hide only by losing its parents, its
// session and its environment before anybody looked; ending everything finds
// it still.
func (c *command) tree(all []proc, known ...map[proc]bool) []proc {
	self, pid := os.Getpid(), c.main()
	running := true
	select {
	case <-c.ended:
		running = false // its number may be another's by now
	default:
	}
	var roots []int
	var out []proc
	for _, p := range all {
		mine := pid != 0 && p.session == pid && (running || p.pid != pid)
		for _, k := range known {
			mine = mine || k[proc{pid: p.pid, start: p.start}]
		}
		if !mine && p.ppid == self && !c.s.isMain(p.pid) {
			mine = c.marked(p.pid)
		}
		if mine {
			roots = append(roots, p.pid)
			out = append(out, p)
		}
	}
	return append(out, below(all, roots...)...)
}

// marked tells whether a process was started with the command's mark.
func (c *command) marked(pid int) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if string(e) == c.mark {
			return true
		}
	}
	return false
}

// isMain tells whether a process is the main process of a command.
func (s *server) isMain(pid int) bool {
	for _, c := range s.all() {
		if c.main() == pid {
			return true
		}
	}
	return false
}
