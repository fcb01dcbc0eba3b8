package container

import (
	"context"
	"os"
	"time"

	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
)

// TreeMemory is what all processes below root take of the memory, in bytes:
// their proportional set size, which counts a shared page once (smaps_rollup
// of proc(5), since Linux 4.14). Where that cannot be read it is the resident
// set, which is more.
func TreeMemory(root int) (sum int64) {
	for _, p := range run.Below(root) {
		sum += memoryOf(p)
	}
	return sum
}

// memoryOf is what one process takes.
func memoryOf(p run.Proc) int64 {
	if p.Zombie || p.RSS == 0 {
		return 0
	}
	if own, ok := run.Proportional(p.PID); ok {
		return own
	}
	return p.RSS
}

// WatchMemory looks once a second what the processes below this one take, and
// calls over when it is more than the limit, until over returns false or ctx
// ends. What grows faster than that can pass the limit, so it is advisory.
func WatchMemory(ctx context.Context, limit jobs.Bytes, over func(used int64) (again bool)) {
	Look(ctx, func() (again bool) {
		// The resident set is cheap to read, and never less.
		self := os.Getpid()
		var most int64
		for _, p := range run.Below(self) {
			most += p.RSS
		}
		if most <= int64(limit) {
			return true
		}
		used := TreeMemory(self)
		return used <= int64(limit) || over(used)
	})
}

// Look calls look once a second, until it returns false or ctx ends.
func Look(ctx context.Context, look func() (again bool)) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if !look() {
				return
			}
		}
	}
}

// KillLargest ends the smallest tree of processes that holds more than half of
// what all the commands below root take. guest is the guest's process id as
// the guest sees it; its children are the commands. In a room it is the first process
// of a namespace that lies below the container's. It returns the name of the tree's top,
// and what the tree held.
func KillLargest(root, guest int, inRoom bool) (name string, held int64) {
	if pid, _, ok := first(root, 2); inRoom && !ok {
		return "nothing", 0
	} else if inRoom {
		return killLargest(root, func(p run.Proc) bool { return p.PID == pid })
	}
	return killLargest(root, func(p run.Proc) bool {
		n := len(p.NSPID)
		return n > 0 && p.NSPID[n-1] == guest && (n > 1 || p.PID == guest)
	})
}

func killLargest(root int, isGuest func(run.Proc) bool) (name string, held int64) {
	all := run.Below(root)
	children := map[int][]run.Proc{}
	var top []run.Proc
	for _, p := range all {
		children[p.PPID] = append(children[p.PPID], p)
	}
	for _, p := range all {
		if isGuest(p) {
			top = children[p.PID]
		}
	}
	if len(top) == 0 {
		return "nothing", 0
	}
	own, tree := map[int]int64{}, map[int]int64{}
	var sum func(p run.Proc) int64
	sum = func(p run.Proc) int64 {
		own[p.PID] = memoryOf(p)
		t := own[p.PID]
		for _, c := range children[p.PID] {
			t += sum(c)
		}
		tree[p.PID] = t
		return t
	}
	var worst run.Proc
	for _, p := range top {
		if sum(p) >= tree[worst.PID] {
			worst = p
		}
	}
	for {
		var next *run.Proc
		for _, c := range children[worst.PID] {
			if tree[c.PID] > tree[worst.PID]/2 {
				next = &c
			}
		}
		if next == nil {
			break
		}
		worst = *next
	}
	// The top first, so that it starts nothing more; its children have
	// another parent then, and are known by their start.
	tops := []run.Proc{worst}
	starts := []string{lease.StartTime(worst.PID)}
	for i := 0; i < len(tops); i++ {
		for _, c := range children[tops[i].PID] {
			tops, starts = append(tops, c), append(starts, lease.StartTime(c.PID))
		}
	}
	for i, p := range tops {
		run.KillSame(p.PID, func() bool { return lease.StartTime(p.PID) == starts[i] })
	}
	return worst.Name, tree[worst.PID]
}
