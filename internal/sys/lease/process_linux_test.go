package lease

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"berth/test/fakes/headless"
)

// TestHeadless: a process goes on without its first thread.
func TestHeadless(t *testing.T) {
	cmd := headless.Start(t)
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("in vain: %s", what)
			}
		}
	}
	if at := StartTime(cmd.Process.Pid); at == "" || at == UnknownStart {
		t.Errorf("it lives, and began at %q", at)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually("its zombie is none", func() bool { return StartTime(cmd.Process.Pid) == "" })
}

// TestExiting kills the first process of a PID namespace. It closes its files, and
// is no zombie before all others there have been reaped, which their parent outside
// does not do as long as it is stopped.
func TestExiting(t *testing.T) {
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("in vain: %s", what)
			}
		}
	}
	first := exec.Command("sleep", "300")
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	if err := first.Start(); errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("user namespaces are off here")
	} else if err != nil {
		t.Fatal(err)
	}
	pid := first.Process.Pid
	parent := exec.Command("nsenter", "--preserve-credentials", "-U", "-p", "-t", strconv.Itoa(pid), "sh", "-c", "echo ready; exec sleep 300")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = first.Process.Kill(), parent.Process.Kill()
		_, _ = first.Wait(), parent.Wait()
	})
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if Exiting(pid) {
		t.Error("it is on its way out before it was killed")
	}
	if err := parent.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually("its parent is stopped", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", parent.Process.Pid))
		state, _, _, ok := parseStat(string(text))
		return err == nil && ok && state == "T"
	})
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually("it is on its way out", func() bool { return Exiting(pid) })
	if at := StartTime(pid); at == "" {
		t.Error("it is a zombie already, and this test tells nothing")
	}
	if Exiting(headless.Start(t).Process.Pid) {
		t.Error("a process that goes on without its first thread is on its way out")
	}
}

func TestParseStat(t *testing.T) {
	state, threads, start, ok := parseStat("7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 4242 1 1")
	if !ok || state != "S" || threads != 3 || start != "4242" {
		t.Error(state, threads, start, ok)
	}
}

func FuzzStat(f *testing.F) {
	f.Add("7 (x) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1")
	f.Fuzz(func(_ *testing.T, s string) { _, _, _, _ = parseStat(s) })
}
