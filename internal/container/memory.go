package container

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"time"

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
