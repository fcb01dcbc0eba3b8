//go:build linux

package run_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"
)

// family is what this test program does as a command with these words: it starts
// a child in a process group of its own, which does the same once more, and one
// in a session of its own, tells who they are, and stays.
func family(generation string) {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	start := func(attr syscall.SysProcAttr, argv ...string) {
		c := exec.Command(argv[0], argv[1:]...)
		c.Stdout, c.SysProcAttr = os.Stdout, &attr
		if err := c.Start(); err != nil {
			panic(err)
		}
	}
	who := "child"
	if generation == "first" {
		start(syscall.SysProcAttr{Setsid: true}, self, "family", "apart")
		start(syscall.SysProcAttr{Setpgid: true}, self, "family", "second")
	} else if generation == "second" {
		start(syscall.SysProcAttr{Setpgid: true}, self, "family", "third")
	} else if generation == "apart" {
		who = "apart"
	}
	fmt.Println(who, os.Getpid())
	select {}
}

// TestContextKillsTree ends the context of a command that has started others in
// process groups of their own, as a container program does with the helpers of
// its file system: they end with it, and have ended when it has. What has a
// session of its own lives on.
func TestContextKillsTree(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	ctx, kill := context.WithCancel(bounded(t))
	defer kill()
	p, err := run.Local{}.Start(ctx, jobs.Cmd{Argv: []string{self, "family", "first"}, Stdout: w})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	apart := 0
	said := bufio.NewReader(r)
	for range 4 {
		line, err := said.ReadString('\n')
		var who string
		var pid int
		if _, serr := fmt.Sscan(line, &who, &pid); err != nil || serr != nil {
			t.Fatalf("%q: %v, %v", line, err, serr)
		}
		if who == "apart" {
			apart = pid
			defer func() { _ = syscall.Kill(apart, syscall.SIGKILL) }()
		} else {
			children = append(children, pid)
		}
	}
	kill()
	if exit, err := p.Wait(); err != nil || exit.Signal != 9 {
		t.Errorf("got %+v, %v", exit, err)
	}
	for _, pid := range children {
		if q, ok := run.ReadProc(pid); ok && !q.Zombie && cmdline(pid) == "family" {
			t.Errorf("%d lives on: %+v", pid, q)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if q, ok := run.ReadProc(apart); !ok || q.Zombie || q.Stopped {
		t.Errorf("what has a session of its own: %+v, %v", q, ok)
	}
}

// cmdline is the second word of a process.
func cmdline(pid int) string {
	b, _ := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "cmdline"))
	if f := strings.Split(string(b), "\x00"); len(f) > 1 {
		return f[1]
	}
	return ""
}
