package run

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// What a tree takes is all below its root, whatever group it is in; a group is those that are in it.
func TestMemory(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "echo ready; head -c 30000000 /dev/zero | tail -c 29000000 | sleep 600 & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var m Memory // looks now
		below, all, group := m.Tree(cmd.Process.Pid, false), m.Tree(cmd.Process.Pid, true), m.Group(cmd.Process.Pid)
		if below > 29_000_000 && below < 60_000_000 && all > below && group >= below {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d bytes below it, %d with it, %d in its group", below, all, group)
		}
	}
	if n := (&Memory{}).Tree(1<<30, true); n != 0 {
		t.Errorf("%d bytes of no process", n)
	}
}

// A command that leads a session has what it put into the background, though nothing there
// descends from it any more.
func TestMemoryBackground(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "(head -c 30000000 /dev/zero | tail -c 29000000 | sleep 600 &); echo ready; read x")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var m Memory // looks now
		below, all := m.Tree(cmd.Process.Pid, false), m.Tree(cmd.Process.Pid, true)
		if below < 29_000_000 && all > 29_000_000 && all < 60_000_000 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d bytes below it, %d of its session", below, all)
		}
	}
}
