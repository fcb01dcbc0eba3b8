package worker

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// memoryEvery is how old a look at all processes may be.
const memoryEvery = time.Second

// memory is what groups of processes take, by one look at /proc for all tasks.
type memory struct {
	mu     sync.Mutex
	at     time.Time
	groups map[int][]resident
}

// resident is a process and its resident memory in bytes.
type resident struct {
	pid   int
	bytes int64
}

// of is what a group takes: resident memory, in which pages that processes share are
// counted for each. Of several processes it is what is their own and their parts of what is
// shared, where the kernel tells it.
func (m *memory) of(group int) (sum int64) {
	m.mu.Lock()
	if time.Since(m.at) >= memoryEvery {
		m.at, m.groups = time.Now(), residents()
	}
	all := m.groups[group]
	m.mu.Unlock()
	for _, r := range all {
		if len(all) > 1 {
			if own, ok := proportional(r.pid); ok {
				sum += own
				continue
			}
		}
		sum += r.bytes
	}
	return sum
}

// residents are all processes that can be seen, by their groups.
func residents() map[int][]resident {
	groups := map[int][]resident{}
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
		group, err2 := strconv.Atoi(string(f[2]))
		pages, err3 := strconv.ParseInt(string(f[21]), 10, 64)
		if err1 == nil && err2 == nil && err3 == nil {
			groups[group] = append(groups[group], resident{pid, pages * int64(os.Getpagesize())})
		}
	}
	return groups
}

// proportional is the Pss of a process.
func proportional(pid int) (int64, bool) {
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
