//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// spec is what this process was told.
type spec struct {
	name string
	nth  int
	file string // removed by whoever is killed by it, or ""
	log  string
}

var told = sync.OnceValue(func() spec {
	home, _ := os.UserHomeDir()
	s := spec{nth: 1, log: filepath.Join(home, LogFile)}
	text := os.Getenv("BERTH_FAILPOINT")
	if text == "" {
		b, err := os.ReadFile(filepath.Join(home, OrderFile))
		if err != nil {
			return s
		}
		text, s.file = strings.TrimSpace(string(b)), filepath.Join(home, OrderFile)
	}
	name, ok := strings.CutSuffix(text, ":kill")
	if !ok {
		panic(fmt.Sprintf("failpoint: %q is not NAME:kill", text))
	}
	if at, nth, ok := strings.Cut(name, "@"); ok {
		n, err := strconv.Atoi(nth)
		if err != nil {
			panic(err)
		}
		name, s.nth = at, n
	}
	s.name = name
	return s
})

// OrderFile and LogFile stand in $HOME.
const (
	OrderFile = ".berth-failpoint"
	LogFile   = ".berth-failpoint.log"
)

var (
	mu     sync.Mutex
	counts = map[string]int{}
)

// Hit is a point that a test may kill the process at.
func Hit(name string) {
	if !registered(name) {
		panic("failpoint: " + name + " is not registered")
	}
	hit(name)
}

// File is a point of the writing of a file: its name is that of the file, a
// colon, and the step.
func File(path, step string) { hit(filepath.Base(path) + ":" + step) }

// hit holds the lock until the process is dead: no other goroutine continues.
func hit(name string) {
	s := told()
	mu.Lock()
	defer mu.Unlock()
	counts[name]++
	if f, err := os.OpenFile(s.log, os.O_WRONLY|os.O_APPEND, 0); err == nil {
		_, _ = f.WriteString(name + "\n")
		_ = f.Close()
	}
	if s.name != name || counts[name] != s.nth {
		return
	}
	if s.file != "" && os.Remove(s.file) != nil {
		return // another process was the first
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

var later = sync.OnceValue(func() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("BERTH_FAILPOINT_LATER"))
	return d
})

// Now is time.Now, which a test may put forward.
func Now() time.Time { return time.Now().Add(later()) }
