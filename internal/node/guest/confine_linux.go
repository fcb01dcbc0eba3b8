package guest

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"berth/internal/node/room"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// confiner starts processes from one thread that has less than the guest: only
// the capabilities that Docker leaves to root, no new ones by any program, and
// the filter of system calls. What is started there inherits all three. The
// guest's other threads keep what they have, so that a command, with less, can
// neither trace the guest nor read its memory.
type confiner struct{ work chan func() }

// start runs fork on the confined thread.
func (c *confiner) start(fork func() (int, error)) (pid int, err error) {
	done := make(chan struct{})
	c.work <- func() {
		defer close(done)
		pid, err = fork()
	}
	<-done
	return pid, err
}

// confine begins the thread, and returns what it has left. Commands have at most the
// capabilities most.
func confine(most uint64, w where) (c *confiner, left confined, err error) {
	c = &confiner{work: make(chan func())}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread() // for ever
		left, err = confineThread(most, w)
		close(ready)
		for f := range c.work {
			f()
		}
	}()
	<-ready
	if err != nil {
		close(c.work)
		return nil, left, err
	}
	return c, left, nil
}

// confined is what commands have.
type confined struct {
	noNewPrivs   bool
	filtered     bool
	capabilities uint64 // that they can have at most
}

// keptCapabilities are those of commands: Docker's default list. None of them
// mounts, traces what has more, or reaches past the container.
var keptCapabilities = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP,
	unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SYS_CHROOT, unix.CAP_MKNOD, unix.CAP_AUDIT_WRITE, unix.CAP_SETFCAP,
}

func keptMask() (mask uint64) {
	for _, c := range keptCapabilities {
		mask |= 1 << c
	}
	return mask
}

// confineThread takes from the thread it runs on what commands shall not have.
func confineThread(most uint64, w where) (left confined, err error) {
	if left.capabilities, err = room.DropCapabilities(keptMask() & most); err != nil {
		return left, fmt.Errorf("take capabilities from commands: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return left, fmt.Errorf("set NoNewPrivs for commands: %w", err)
	}
	left.noNewPrivs = true
	prog := ownFilter(w)
	if prog == nil {
		return left, errors.New("no filter of system calls was written for " + runtime.GOARCH)
	}
	if err := setFilter(prog); err != nil {
		return left, fmt.Errorf("filter the system calls of commands: %w", err)
	}
	left.filtered = true
	return left, nil
}

// setFilter has the kernel ask a program at each call of this thread and of what
// it starts.
func setFilter(prog []bpf.Instruction) error {
	raw, err := bpf.Assemble(prog)
	if err != nil {
		return err
	}
	words := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		words[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	p := unix.SockFprog{Len: uint16(len(words)), Filter: &words[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(words)
	if errno != 0 {
		return errno
	}
	return nil
}
