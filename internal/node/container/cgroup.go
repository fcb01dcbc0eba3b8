package container

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/jobs"
)

// Cgroup is the memory controller's directory of this process, version 1 or 2.
type Cgroup struct {
	dir string
	top string // of the controller's hierarchy
	v2  bool
}

// OwnCgroup finds it by the process's list of cgroups (cgroups(7)) and the
// directory where they are mounted, or returns nil where there is none to be
// seen.
func OwnCgroup(list, mounted string) *Cgroup {
	b, err := os.ReadFile(list)
	if err != nil {
		return nil
	}
	var unified *Cgroup
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[0] == "0" && f[1] == "" {
			unified = &Cgroup{dir: filepath.Join(mounted, f[2]), top: mounted, v2: true}
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			if c != "memory" {
				continue
			}
			top := filepath.Join(mounted, "memory")
			g := &Cgroup{dir: filepath.Join(top, f[2]), top: top}
			if _, err := os.Stat(g.file("memory.oom_control")); err == nil {
				return g
			}
		}
	}
	if unified != nil {
		if _, err := os.Stat(unified.file("memory.events")); err == nil {
			return unified
		}
	}
	return nil
}

func (g *Cgroup) file(name string) string { return filepath.Join(g.dir, name) }

// ForJob returns the cgroup when it is the own one of a scheduler's job.
// Elsewhere it is a login session's or the whole machine's, and a process killed
// there may have nothing to do with the task.
func (g *Cgroup) ForJob(s jobs.NodeScheduler, id string) *Cgroup {
	if g == nil || !s.HasCgroup(g.dir, id) {
		return nil
	}
	return g
}

// OOMKills counts the processes that the kernel has killed here for memory.
// Version 1 counts in memory.oom_control since Linux 4.13, version 2 in
// memory.events (the kernel's cgroup-v1/memory and cgroup-v2 documents).
func (g *Cgroup) OOMKills() int {
	if g == nil {
		return 0
	}
	name := "memory.oom_control"
	if g.v2 {
		name = "memory.events"
	}
	b, err := os.ReadFile(g.file(name))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// Peak is the most memory that was used here, page cache included; 0 where the
// kernel does not remember it (memory.peak of version 2 is there since Linux
// 5.19).
func (g *Cgroup) Peak() jobs.Bytes {
	if g == nil {
		return 0
	}
	name := "memory.max_usage_in_bytes"
	if g.v2 {
		name = "memory.peak"
	}
	b, err := os.ReadFile(g.file(name))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return jobs.Bytes(max(n, 0))
}

// Limit is the smallest memory limit from here up, or 0 when there is none.
func (g *Cgroup) Limit() jobs.Bytes {
	if g == nil {
		return 0
	}
	name := "memory.limit_in_bytes"
	if g.v2 {
		name = "memory.max"
	}
	var least jobs.Bytes
	for dir := g.dir; strings.HasPrefix(dir, g.top); dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			// Version 1 writes "no limit" as a number near 2^63.
			if err == nil && n > 0 && n < 1<<60 && (least == 0 || jobs.Bytes(n) < least) {
				least = jobs.Bytes(n)
			}
		}
		if dir == g.top {
			break
		}
	}
	return least
}
