//go:build !linux

package run

import (
	"errors"
	"syscall"
)

func ownMounts(*syscall.SysProcAttr) error {
	return errors.New("namespaces of mounts are Linux's")
}

func dumpable() (undo func()) { return func() {} }

// HasOwnMounts is false: only Linux has namespaces of mounts.
func HasOwnMounts() bool { return false }

func ownNetwork(*syscall.SysProcAttr) error { return errors.New("network namespaces are Linux's") }
