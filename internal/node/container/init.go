package container

import (
	"os"

	"berth/internal/sys/lease"
	"berth/internal/sys/run"
)

// Init finds the first process of the container that is open below root, by its
// PID namespace: the one right below this process's own, of which it has number
// 1. What a task makes for itself inside lies deeper, and it cannot come up. The
// start time tells the process from a later one with its number. There is none
// while the container is not open, and more than one is none, too.
func Init(root int) (pid int, start string, ok bool) { return first(root, 1) }

// Room finds the first process of the room below the container whose first process is
// init, as Init does.
func Room(init int) (pid int, start string, ok bool) { return first(init, 2) }

// first finds the first process of the only PID namespace that is so many levels below
// this process's own, of those below root.
func first(root, deep int) (pid int, start string, ok bool) {
	self, found := run.ReadProc(os.Getpid())
	if !found {
		return 0, "", false
	}
	n := 0
	for _, p := range run.Below(root) {
		if len(p.NSPID) != len(self.NSPID)+deep || p.NSPID[len(p.NSPID)-1] != 1 || p.Zombie {
			continue
		}
		n++
		pid = p.PID
	}
	if n != 1 {
		return 0, "", false
	}
	// In this order: whoever has the number now is looked at once more.
	start = lease.StartTime(pid)
	p, found := run.ReadProc(pid)
	if !found || start == "" || start == lease.UnknownStart || len(p.NSPID) != len(self.NSPID)+deep || p.NSPID[len(p.NSPID)-1] != 1 {
		return 0, "", false
	}
	return pid, start, true
}
