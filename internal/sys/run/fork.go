package run

import "syscall"

// Fork starts a program that the caller will wait for by its process id. It is
// for the guest: as a child subreaper it waits for all its children in one
// place, its own commands and orphans alike, and a wait for one of them
// elsewhere, as os/exec does it, would miss its answer.
func Fork(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	return syscall.ForkExec(path, argv, attr)
}
