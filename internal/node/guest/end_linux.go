package guest

import (
	"bytes"
	"crypto/rand"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"berth/internal/link/wire"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// newMark makes a command's mark.
func newMark() string { return markName + "=" + rand.Text()[:12] }

const markName = "BERTH_COMMAND"

// main returns the main process, or 0 before it runs.
func (c *command) main() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// setMain notes the main process.
func (c *command) setMain(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = pid
}

// beginIn notes that the command begins now in a shell, unless it was told not
// to. What the shell has started before is not the command's.
func (c *command) beginIn(w *warm) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	c.pid, c.warm, c.since = w.pid, w, ticks()
	if c.since == w.ended {
		c.before = w.children()
	}
	return true
}

func (c *command) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

func (c *command) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// maxEarly is how many signals are kept for a command that has not begun.
const maxEarly = 64

// signal delivers a signal to the main process' group, or to every process of
// the command. One that comes before the command begins is delivered then.
func (c *command) signal(m wire.SignalMessage) {
	c.mu.Lock()
	if !c.started && !c.over {
		if len(c.early) < maxEarly {
			c.early = append(c.early, m)
		}
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.deliver(m)
}

// deliverEarly delivers the signals that came before the command began, in their
// order. None is sent to a command that is being ended.
func (c *command) deliverEarly() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.early) > 0 && !c.stopped {
		m := c.early[0]
		c.early = c.early[1:]
		c.mu.Unlock()
		c.deliver(m)
		c.mu.Lock()
	}
	c.started, c.early = true, nil
}

func (c *command) deliver(m wire.SignalMessage) {
	pid, sig := c.main(), syscall.Signal(m.Signal)
	if pid == 0 || m.Signal <= 0 {
		return
	}
	if m.Scope != wire.ScopeTree && c.shell == nil {
		_ = c.s.reaper.signalGroup(pid, sig)
		return
	}
	for _, p := range c.tree(processes()) {
		if m.Scope == wire.ScopeTree || p.group == pid {
			c.signalOne(p, sig)
		}
	}
}

// signalOne signals a process of the command, but not a shell that has gone on
// to something else.
func (c *command) signalOne(p proc, sigs ...syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shell != nil && c.over {
		return
	}
	for _, sig := range sigs {
		signalProc(p, sig)
	}
}

// timeout ends the command because its time is over.
func (c *command) timeout() {
	c.mu.Lock()
	if c.over || c.stopped {
		c.mu.Unlock()
		return
	}
	c.timedOut = true
	c.killing.Add(1)
	c.mu.Unlock()
	defer c.killing.Done()
	c.terminateNow(c.msg.Grace)
}

// terminate ends the command and everything that it has started.
func (c *command) terminate(grace time.Duration) {
	c.mu.Lock()
	if c.shell != nil && c.over {
		c.mu.Unlock()
		return
	}
	c.killing.Add(1)
	c.mu.Unlock()
	defer c.killing.Done()
	c.terminateNow(grace)
}

func (c *command) terminateNow(grace time.Duration) {
	// What belongs to the command is best seen while its main process lives.
	known := map[proc]bool{}
	for _, p := range c.tree(processes()) {
		known[p.id()] = true
	}
	session := c.main()
	c.endMain(grace)
	// Not by the whole namespace: another command may begin at any moment.
	killTree(false, func(all []proc) []proc {
		if c.alone() {
			return below(all, os.Getpid())
		}
		return c.tree(all, known, c.orphans(all, session))
	}, killWait)
}

// own are the processes that may be this guest's at all: it is a child
// subreaper, so that all that it has started stays below it. In a place of its
// own that is all there are.
func (s *server) own(all []proc) []proc {
	if !s.joined {
		return all
	}
	return below(all, os.Getpid())
}

// orphans picks what is left in the Unix session of a main process that has
// ended: it may have forked between the last look at it and its death.
func (c *command) orphans(all []proc, session int) map[proc]bool {
	c.mu.Lock()
	w, since, over := c.warm, c.since, c.over
	c.mu.Unlock()
	if w != nil {
		select {
		case <-w.dead:
		default:
			return nil // it has gone on to something else
		}
	}
	if session == 0 || !over || c.s.isMain(session) || c.s.isShell(session) {
		return nil
	}
	out := map[proc]bool{}
	for _, p := range c.s.own(all) {
		if p.session == session && p.start >= since && !c.foreign(p.pid) {
			out[p.id()] = true
		}
	}
	return out
}

// endMain ends the main process, or keeps it from starting: TERM to its group,
// KILL after grace. CONT follows TERM, because a stopped process takes a signal
// only when it goes on. A terminal is hung up, which an interactive shell heeds.
// In a session's shell it is the processes of this command and the shell
// itself, which would go on with the command's next line; that one comes first.
func (c *command) endMain(grace time.Duration) {
	c.mu.Lock()
	if !c.stopped {
		c.stopped = true
		c.unpinged = !c.over && c.s.unpinged.Load()
		close(c.stop)
	}
	pid, over := c.pid, c.over
	c.mu.Unlock()
	if pid == 0 || over {
		return
	}
	sigs := []syscall.Signal{unix.SIGTERM, unix.SIGCONT}
	if c.terminal != nil {
		sigs = []syscall.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGCONT}
	}
	if grace > 0 {
		if c.shell == nil {
			_ = c.s.reaper.signalGroup(pid, sigs...)
		} else {
			_ = c.s.reaper.signalOne(pid, sigs...)
			for _, p := range c.tree(processes()) {
				if p.pid != pid {
					c.signalOne(p, sigs...)
				}
			}
		}
		select {
		case <-c.ended:
			return
		case <-time.After(grace):
		}
	}
	if c.shell == nil {
		_ = c.s.reaper.signalGroup(pid, unix.SIGKILL)
	} else {
		_ = c.s.reaper.signalOne(pid, unix.SIGKILL)
	}
}

// alone tells whether no other command is under way, in a guest without
// sessions. Then everything below the guest is of this command, or was left
// behind by an earlier one of the same job.
func (c *command) alone() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, o := range under[*command](c.s) {
		if o != c {
			return false
		}
	}
	return len(c.s.shells) == 0
}

// tree picks the command's processes: its main one, the members of its Unix
// session, orphans that carry its mark or can be of no other, those known from
// before, and what descends from them. Nothing that is older than the command
// is its, nor what descends from that: in a session's shell these are what
// earlier commands have left to run. A process can hide only by losing its
// parents, its session and its environment, while another command runs, before
// anybody looked; ending everything finds it still.
func (c *command) tree(all []proc, known ...map[proc]bool) []proc {
	self := os.Getpid()
	c.mu.Lock()
	pid, since, before := c.pid, c.since, c.before
	running := pid != 0 && !c.over
	c.mu.Unlock()
	young := make([]proc, 0, len(all))
	var roots []int
	var out []proc
	for _, p := range c.s.own(all) {
		main := running && p.pid == pid
		if !main && (p.start < since || before[p.pid]) {
			continue
		}
		young = append(young, p)
		mine := main || pid != 0 && p.session == pid && p.pid != pid && (c.shell == nil || p.ppid == pid || !c.foreign(p.pid))
		for _, k := range known {
			mine = mine || k[p.id()]
		}
		if !mine && p.ppid == self && !c.s.isMain(p.pid) && !c.s.isShell(p.pid) {
			switch mark := markOf(p.pid); mark {
			case c.mark:
				mine = true
			case "":
				mine = !c.mixed.Load()
			}
		}
		if mine {
			roots = append(roots, p.pid)
			out = append(out, p)
		}
	}
	return append(out, below(young, roots...)...)
}

// settling is how long what a command has left may take to end by itself, before it
// counts as left running: the ends of pipelines take a moment.
const settling = 200 * time.Millisecond

// left is what the command has left running.
func (c *command) left() *jobs.LeftRunning {
	out := &jobs.LeftRunning{}
	if len(c.living()) == 0 {
		return out
	}
	time.Sleep(settling)
	for _, p := range c.living() {
		if out.Count++; len(out.Names) < jobs.MostLeft {
			name, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/comm")
			out.Names = append(out.Names, string(bytes.TrimSuffix(name, []byte("\n"))))
		}
	}
	return out
}

// living are the processes of the command that have not ended.
func (c *command) living() []proc {
	return slices.DeleteFunc(c.tree(processes()), func(p proc) bool { return p.zombie })
}

// foreign tells whether a process carries the mark of another command.
func (c *command) foreign(pid int) bool {
	m := markOf(pid)
	return m != "" && m != c.mark
}

// markOf returns the mark of the command that has started a process, or "".
func markOf(pid int) string {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.HasPrefix(e, []byte(markName+"=")) {
			return string(e)
		}
	}
	return ""
}

// isMain tells whether a process is the main process of a command.
func (s *server) isMain(pid int) bool {
	for _, c := range under[*command](s) {
		if c.main() == pid {
			return true
		}
	}
	return false
}
