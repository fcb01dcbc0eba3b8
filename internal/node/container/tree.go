package container

import (
	"time"

	"berth/internal/sys/lease"
	"berth/internal/sys/run"
)

// KillContainer kills the init of the container's PID namespace: the kernel
// then kills all that is in it, setsid or not, and the container program's own
// parent process lives on to unmount. Killing that parent instead would leave
// its FUSE helpers behind. Found by its namespace, because its name differs
// between versions.
func KillContainer(self int) (killed int) {
	for _, p := range run.Below(self) {
		if n := len(p.NSPID); n >= 2 && p.NSPID[n-1] == 1 && !p.Zombie {
			if kill(p.PID, p.PPID) {
				killed++
			}
		}
	}
	return killed
}

// leastLooks is how often [KillAll] looks before it takes a process for one that
// cannot be killed: this process may have stood still until the time was up.
const leastLooks = 50

// KillAll kills everything below self until nothing is left, or time is up.
// It is for a place without a PID namespace, and for what a container program
// has left behind.
func KillAll(self int, within time.Duration) (left int) {
	deadline := time.Now().Add(within)
	for looks := 1; ; looks++ {
		left = 0
		for _, p := range run.Below(self) {
			if p.Zombie {
				continue
			}
			left++
			kill(p.PID, p.PPID)
		}
		if left == 0 || looks >= leastLooks && time.Now().After(deadline) {
			return left
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// kill sends SIGKILL, after making sure that the number still belongs to the
// process that was seen.
func kill(pid, ppid int) bool {
	return run.KillSame(pid, func() bool {
		p, ok := run.ReadProc(pid)
		return ok && p.PPID == ppid
	})
}

// Pids lists the processes below root which are no zombies.
func Pids(root int) (out []int) {
	for _, p := range run.Below(root) {
		if !p.Zombie {
			out = append(out, p.PID)
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
		below := run.Below(pid)
		if p, ok := run.ReadProc(pid); ok {
			kill(p.PID, p.PPID)
		}
		for _, c := range below {
			start := lease.StartTime(c.PID)
			run.KillSame(c.PID, func() bool { return lease.StartTime(c.PID) == start })
		}
	}
}
