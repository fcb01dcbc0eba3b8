//go:build linux

package session_test

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/internal/link/session"

	"golang.org/x/sys/unix"
)

// callsMain is a command that makes system calls, and says what came of them; its
// argument is the guest's process.
func callsMain(args []string, out io.Writer) int {
	runtime.LockOSThread()
	guest, _ := strconv.Atoi(args[0])
	call := func(name string, number, a, b, c uintptr) {
		_, _, errno := unix.Syscall(number, a, b, c)
		_, _ = fmt.Fprintf(out, "%s %d\n", name, errno)
	}
	call("keyctl", unix.SYS_KEYCTL, 0, 0xfffffffd, 0) // KEYCTL_GET_KEYRING_ID of the session
	call("add_key", unix.SYS_ADD_KEY, 0, 0, 0)
	call("request_key", unix.SYS_REQUEST_KEY, 0, 0, 0)
	call("io_uring_setup", unix.SYS_IO_URING_SETUP, 1, 0, 0)
	call("bpf", unix.SYS_BPF, 0, 0, 0)
	call("perf_event_open", unix.SYS_PERF_EVENT_OPEN, 0, 0, 0)
	call("userfaultfd", unix.SYS_USERFAULTFD, 0, 0, 0)
	call("seize", unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(guest), 0)
	for _, name := range []string{"mem", "environ", "root"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", guest, name))
		_, _ = fmt.Fprintln(out, name, err == nil)
		_ = f.Close()
	}
	// A debugger's child, and namespaces of one's own.
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Ptrace: true}})
	var ws unix.WaitStatus
	if err == nil {
		_, err = unix.Wait4(pid, &ws, 0, nil)
		_ = unix.PtraceCont(pid, 0)
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
	_, _ = fmt.Fprintln(out, "debugger", err == nil && ws.Stopped())
	_, _ = fmt.Fprintln(out, "namespaces", ownNamespaces())
	return 0
}

// ownNamespaces tells whether a process can have namespaces of its own.
func ownNamespaces() bool {
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS}})
	if err == nil {
		_, err = unix.Wait4(pid, nil, 0, nil)
	}
	return err == nil
}

// TestConfine has a command try what it may not and what it may, in the shell of
// a session and as a process of its own. The guest keeps what it has.
func TestConfine(t *testing.T) {
	for name, own := range map[string]bool{"shell": false, "fork": true} {
		t.Run(name, func(t *testing.T) {
			p := open(t, session.Options{Confine: true})
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			req := shell(fmt.Sprintf("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; %s=%s exec %s %d", roleVar, roleCalls, self, p.s.Guest().PID))
			req.Session, req.Fork = "default", own
			res, out, errs := p.run(req)
			if !res.Exit.OK() {
				t.Fatalf("%+v %s %s", res.Exit, out, errs)
			}
			got := map[string]string{}
			for line := range strings.Lines(out) {
				if k, v, ok := strings.Cut(strings.ReplaceAll(strings.TrimSpace(line), ":\t", " "), " "); ok {
					got[k] = v
				}
			}
			want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "mem": "false", "environ": "false", "root": "false", "debugger": "true", "namespaces": strconv.FormatBool(ownNamespaces())}
			for _, call := range []string{"keyctl", "add_key", "request_key", "io_uring_setup", "bpf", "perf_event_open", "userfaultfd", "seize"} {
				want[call] = strconv.Itoa(int(unix.EPERM))
			}
			for k, v := range want {
				if got[k] != v {
					t.Errorf("%s: %q, want %q", k, got[k], v)
				}
			}
			const docker = 0xa80425fb
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
				mask, err := strconv.ParseUint(got[set], 16, 64)
				if err != nil || mask&^docker != 0 && (set != "CapBnd" || os.Getuid() == 0) {
					t.Errorf("%s: %q", set, got[set])
				}
			}
		})
	}
}
