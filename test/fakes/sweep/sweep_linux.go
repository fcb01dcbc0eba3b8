// Package sweep is for what plays other machines in tests: it ends all that runs
// on one, as the end of a machine does.
package sweep

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/sys/run"
)

// Mark is how processes are known whose parents have ended. Its zero value marks
// none.
type Mark struct {
	Env string // a NAME=VALUE of their environment
	Dir string // they are in it
}

// Bounds of [End], not what it takes.
const (
	stopTime = time.Second
	goneTime = 5 * time.Second
)

// End kills processes, all below them, and those with the mark. No process sees
// another one's end: all are stopped, parents first, before one is killed.
func End(m Mark, roots ...int) {
	known := map[int]bool{}
	for _, pid := range roots {
		known[pid] = true
	}
	var all []run.Proc
	signal := func(sig syscall.Signal) {
		for _, p := range all {
			_ = syscall.Kill(p.PID, sig)
		}
	}
	for until := time.Now().Add(stopTime); ; time.Sleep(time.Millisecond) {
		all = m.find(known)
		if !slices.ContainsFunc(all, func(p run.Proc) bool { return !p.Stopped }) || time.Now().After(until) {
			break
		}
		signal(syscall.SIGSTOP)
	}
	for until := time.Now().Add(goneTime); len(all) > 0 && time.Now().Before(until); all = m.find(known) {
		signal(syscall.SIGKILL)
		time.Sleep(2 * time.Millisecond)
	}
}

// find returns those that are known and live, parents first, and has them all
// known.
func (m Mark) find(known map[int]bool) (all []run.Proc) {
	procs := map[int]run.Proc{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if p, ok := run.ReadProc(pid); err == nil && ok && !p.Zombie && pid != os.Getpid() {
			procs[pid] = p
		}
	}
	for pid := range procs {
		if !known[pid] && m.has(pid) {
			known[pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for pid, p := range procs {
			if !known[pid] && known[p.PPID] {
				known[pid], grown = true, true
			}
		}
	}
	depth := func(p run.Proc) (n int) {
		for p, ok := procs[p.PPID]; ok && known[p.PID]; p, ok = procs[p.PPID] {
			n++
		}
		return n
	}
	for pid, p := range procs {
		if known[pid] {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b run.Proc) int { return depth(a) - depth(b) })
	return all
}

func (m Mark) has(pid int) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	if m.Env != "" {
		marked := func(kv []byte) bool { return string(kv) == m.Env }
		if env, err := os.ReadFile(proc + "/environ"); err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), marked) {
			return true
		}
	}
	if m.Dir != "" {
		if cwd, err := os.Readlink(proc + "/cwd"); err == nil && strings.HasPrefix(cwd+"/", m.Dir+"/") {
			return true
		}
	}
	return false
}
