//go:build !linux

package run

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

func ownFiles(*exec.Cmd) (open func() error, done func(), err error) {
	return nil, nil, errors.New("user namespaces are Linux's")
}

// OwnFiles is none: only Linux has user namespaces.
func OwnFiles(context.Context) (can, all bool, why string) {
	return false, false, "user namespaces are Linux's"
}

// Overflow is the id of files that are not this user's.
const Overflow = 65534

// InsideIDs returns which ids files have in a namespace of [jobs.Cmd.OwnFiles],
// which is Linux's: this user's are root's.
func InsideIDs() func(uid, gid int) (int, int) {
	return func(uid, gid int) (int, int) {
		if os.Geteuid() == 0 {
			return uid, gid
		}
		if uid == os.Geteuid() {
			return 0, 0
		}
		return Overflow, Overflow
	}
}
