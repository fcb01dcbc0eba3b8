package guest

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

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

// confine begins the thread, and returns what it has left.
func confine() (c *confiner, left confined, err error) {
	c = &confiner{work: make(chan func())}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread() // for ever
		left, err = confineThread()
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
func confineThread() (left confined, err error) {
	if left.capabilities, err = dropCapabilities(keptMask()); err != nil {
		return left, fmt.Errorf("take capabilities from commands: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return left, fmt.Errorf("set NoNewPrivs for commands: %w", err)
	}
	left.noNewPrivs = true
	prog := ownFilter()
	if prog == nil {
		return left, errors.New("no filter of system calls was written for " + runtime.GOARCH)
	}
	if err := setFilter(prog); err != nil {
		return left, fmt.Errorf("filter the system calls of commands: %w", err)
	}
	left.filtered = true
	return left, nil
}

// dropCapabilities leaves the thread, and what it starts, only those of mask, and
// returns what programs can still have.
func dropCapabilities(mask uint64) (left uint64, err error) {
	var bounding uint64
	for c := range 64 {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			break // the kernel knows no more
		}
		if has == 1 {
			bounding |= 1 << c
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return bounding, err
	}
	permitted := uint64(data[0].Permitted) | uint64(data[1].Permitted)<<32
	const setpcap = 1 << unix.CAP_SETPCAP
	if permitted&setpcap != 0 {
		if data[0].Effective |= setpcap; bounding&^mask != 0 {
			if err := unix.Capset(&head, &data[0]); err != nil {
				return bounding, err
			}
		}
		for c := range 64 {
			if bounding&^mask&(1<<c) != 0 {
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
					return bounding, err
				}
			}
		}
		bounding &= mask
	}
	for i := range data {
		m := uint32(mask >> (32 * i))
		data[i].Effective &= m
		data[i].Permitted &= m
		data[i].Inheritable &= m // and the ambient ones with it
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		return bounding, err
	}
	// Where the bounding set cannot be made smaller, no program gives more than
	// is permitted now: NoNewPrivs is set.
	if permitted&setpcap == 0 {
		return permitted & mask, nil
	}
	return bounding, nil
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
