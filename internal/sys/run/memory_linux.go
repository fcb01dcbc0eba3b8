package run

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// MemoryEvery is how old a look of [Memory] may be.
const MemoryEvery = time.Second

// Memory is what processes take, by one look at /proc for all who ask. The zero Memory has
// not looked yet.
type Memory struct {
	mu   sync.Mutex
	at   time.Time
	seen residents
}

// residents are all processes that can be seen: by their numbers, groups, sessions and parents.
type residents struct {
	one                        map[int]resident
	groups, sessions, children map[int][]resident
}

// resident is a process and its resident memory in bytes.
type resident struct {
	pid   int
	bytes int64
}

// Group is what a process group takes, in bytes: resident memory; of several processes what
// is their own and their parts of what is shared, where the kernel tells it.
func (m *Memory) Group(group int) int64 { return sumOf(m.look().groups[group]) }

// Tree is what all processes take that descend from one. Where leads says that the one
// leads a session, it counts itself, and so does what is in that session, whose parent may
// have ended.
func (m *Memory) Tree(root int, leads bool) int64 {
	seen := m.look()
	var all []resident
	known := map[int]bool{root: true}
	add := func(more []resident) {
		for _, r := range more {
			if !known[r.pid] {
				known[r.pid] = true
				all = append(all, r)
			}
		}
	}
	if r, ok := seen.one[root]; ok && leads {
		all = append(all, r)
		add(seen.sessions[root])
	}
	add(seen.children[root])
	for i := 0; i < len(all); i++ {
		add(seen.children[all[i].pid])
	}
	return sumOf(all)
}

func (m *Memory) look() residents {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.at) >= MemoryEvery {
		m.at, m.seen = time.Now(), readResidents()
	}
	return m.seen
}

func sumOf(all []resident) (sum int64) {
	for _, r := range all {
		if len(all) > 1 {
			if own, ok := Proportional(r.pid); ok {
				sum += own
				continue
			}
		}
		sum += r.bytes
	}
	return sum
}

func readResidents() residents {
	seen := residents{map[int]resident{}, map[int][]resident{}, map[int][]resident{}, map[int][]resident{}}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The second field is a name in brackets, in which anything may stand.
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(f) < 22 {
			continue
		}
		pid, err1 := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		parent, err2 := strconv.Atoi(string(f[1]))
		group, err3 := strconv.Atoi(string(f[2]))
		session, err4 := strconv.Atoi(string(f[3]))
		pages, err5 := strconv.ParseInt(string(f[21]), 10, 64)
		if err1 == nil && err2 == nil && err3 == nil && err4 == nil && err5 == nil {
			r := resident{pid, pages * int64(os.Getpagesize())}
			seen.one[pid] = r
			seen.groups[group] = append(seen.groups[group], r)
			seen.sessions[session] = append(seen.sessions[session], r)
			seen.children[parent] = append(seen.children[parent], r)
		}
	}
	return seen
}

// Proportional is the Pss of a process, in bytes: its own pages and its part of each that is
// shared (smaps_rollup of proc(5), since Linux 4.14). False is that it cannot be read.
func Proportional(pid int) (int64, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == "Pss:" {
			n, err := strconv.ParseInt(string(f[1]), 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
