package container

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/internal/lease"
	"berth/jobs"
)

// TreeMemory is what all processes below root take of the memory, in bytes:
// their proportional set size, which counts a shared page once (smaps_rollup
// of proc(5), since Linux 4.14). Where that cannot be read it is the resident
// set, which is more.
func TreeMemory(root int) (sum int64) {
	for _, p := range descendants(root) {
		sum += p.memory()
	}
	return sum
}

func (p proc) memory() int64 {
	if p.zombie || p.rss == 0 {
		return 0
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/smaps_rollup")
	if err != nil {
		return p.rss
	}
	for line := range bytes.Lines(b) {
		if val, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			if kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(val)), " kB"), 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return p.rss
}

// WatchMemory looks once a second what the processes below this one take, and
// calls over when it is more than the limit, until over returns false or ctx
// ends. What grows faster than that can pass the limit, so it is advisory.
func WatchMemory(ctx context.Context, limit jobs.Bytes, over func(used int64) (again bool)) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			// The resident set is cheap to read, and never less.
			self := os.Getpid()
			var most int64
			all := descendants(self)
			for _, p := range all {
				most += p.rss
			}
			if most <= int64(limit) {
				continue
			}
			if used := TreeMemory(self); used > int64(limit) && !over(used) {
				return
			}
		}
	}
}

// KillLargest ends the smallest tree of processes that holds more than half of
// what all the commands below root take. guest is the guest's process id as
// the guest sees it; its children are the commands. It returns the name of the
// tree's top, and what the tree held.
func KillLargest(root, guest int) (name string, held int64) {
	all := descendants(root)
	children := map[int][]proc{}
	var top []proc
	for _, p := range all {
		children[p.ppid] = append(children[p.ppid], p)
	}
	for _, p := range all {
		if n := len(p.nspid); n > 0 && p.nspid[n-1] == guest && (n > 1 || p.pid == guest) {
			top = children[p.pid]
		}
	}
	if len(top) == 0 {
		return "nothing", 0
	}
	own, tree := map[int]int64{}, map[int]int64{}
	var sum func(p proc) int64
	sum = func(p proc) int64 {
		own[p.pid] = p.memory()
		t := own[p.pid]
		for _, c := range children[p.pid] {
			t += sum(c)
		}
		tree[p.pid] = t
		return t
	}
	var worst proc
	for _, p := range top {
		if sum(p) >= tree[worst.pid] {
			worst = p
		}
	}
	for {
		var next *proc
		for _, c := range children[worst.pid] {
			if tree[c.pid] > tree[worst.pid]/2 {
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
	tops := []proc{worst}
	starts := []string{lease.StartTime(worst.pid)}
	for i := 0; i < len(tops); i++ {
		for _, c := range children[tops[i].pid] {
			tops, starts = append(tops, c), append(starts, lease.StartTime(c.pid))
		}
	}
	for i, p := range tops {
		killSame(p.pid, func() bool { return lease.StartTime(p.pid) == starts[i] })
	}
	return worst.name, tree[worst.pid]
}
