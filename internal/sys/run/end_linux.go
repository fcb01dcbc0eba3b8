package run

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Times of endTree. They are bounds, not what it takes.
const (
	stopTime  = time.Second      // for what was told to stop to stand still: one that hangs in a file system does not
	growsTime = 10 * time.Second // for a tree to be seen that grows meanwhile
	goneTime  = 5 * time.Second  // for what was killed to be gone
)

// endTree kills a command, a child of this process, with all that it has
// started, and returns when that is gone.
//
// Its process group is not all: the helpers that a container's file system
// lives in (FUSE servers) have groups of their own, and
// what they serve is mounted in a namespace that they are in themselves. Without
// the container program, which would end them, they keep each other for ever,
// and belong to init. So they are found by their parents while these live, and
// everything is stopped before anything is killed, that nothing more begins
// meanwhile. What was given a session of its own ([Detach]) is to outlive the
// command, and does.
func endTree(pid int) {
	all := map[int]held{}
	defer func() {
		for _, h := range all {
			h.release()
		}
	}()
	begun := time.Now()
	for newest := begun; ; time.Sleep(time.Millisecond) {
		still := true
		for _, p := range treeOf(pid) {
			if p.Zombie {
				continue
			}
			if _, known := all[p.PID]; known {
				still = still && p.Stopped
				continue
			}
			h, ok := hold(p.PID, func() bool {
				now, ok := ReadProc(p.PID)
				return ok && now.PPID == p.PPID
			})
			if ok {
				still = false
				all[p.PID] = h
				h.signal(unix.SIGSTOP)
				newest = time.Now()
			}
		}
		if still || time.Since(newest) > stopTime || time.Since(begun) > growsTime {
			break
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	for _, h := range all {
		h.signal(unix.SIGKILL)
	}
	until := time.Now().Add(goneTime)
	for _, h := range all {
		h.await(until)
	}
}

// treeOf is the command and what is below it, but for what has left its session
// on this side of a container.
func treeOf(pid int) []Proc {
	root, ok := ReadProc(pid)
	if !ok || root.PPID != os.Getpid() {
		return nil
	}
	session, err := unix.Getsid(pid)
	return append([]Proc{root}, below(pid, func(p Proc) bool {
		if err != nil || len(p.NSPID) > len(root.NSPID) {
			return true
		}
		sid, serr := unix.Getsid(p.PID)
		return serr != nil || sid == session
	})...)
}

// await waits for its end; a zombie has ended.
func (h held) await(until time.Time) {
	for time.Now().Before(until) {
		if h.fd < 0 {
			if p, ok := ReadProc(h.pid); !ok || p.Zombie {
				return
			}
			time.Sleep(5 * time.Millisecond)
			continue
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}, int(time.Until(until).Milliseconds())+1)
		if n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}

// ended returns when a child has ended, and leaves it to be waited for
// (waitid(2)).
func ended(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
