package run

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountCaps are what a process keeps that mounts an overlay in a namespace of
// its own. The kernel does an overlay's work with the rights of whoever has
// mounted it (its documentation of overlayfs, "Permission model"): without
// these it could not copy up a file of mode 000 or make a whiteout. They count
// in the new user namespace alone.
var mountCaps = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID,
	unix.CAP_SYS_CHROOT, unix.CAP_SYS_ADMIN, unix.CAP_MKNOD, unix.CAP_SETFCAP}

// ownMounts makes a command begin in a user and a mount namespace of its own
// that has the caller's ids and no others.
func ownMounts(attr *syscall.SysProcAttr) error {
	attr.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	attr.GidMappingsEnableSetgroups = false
	attr.AmbientCaps = mountCaps
	return nil
}

// ownNetwork makes a command begin in a network namespace of its own, which belongs to
// its user namespace.
func ownNetwork(attr *syscall.SysProcAttr) error {
	attr.Cloneflags |= unix.CLONE_NEWNET
	return nil
}

// dumpable makes this process one whose children can be given ids (their files
// in /proc belong to root otherwise, user_namespaces(7) and proc(5)), until
// the returned function undoes it. Only what starts such a command before
// anybody hostile may run as the same user does so.
func dumpable() (undo func()) {
	was, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || was != 0 {
		return func() {}
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	return func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
}

// HasOwnMounts tells whether this process was started with
// [jobs.Cmd.OwnMounts]: only such a process has ambient capabilities; root's
// processes have none.
func HasOwnMounts() bool {
	set, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, unix.CAP_SYS_ADMIN, 0, 0)
	return err == nil && set == 1
}
