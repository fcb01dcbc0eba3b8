//go:build !linux

package transfer

import (
	"io/fs"
	"os"
)

// inode tells files apart that have several names; here nothing does, and they
// become files of their own.
type inode struct {
	device uint64
	links  uint64
}

func inodeOf(fs.FileInfo) (inode, bool) { return inode{}, false }

// OfKernel tells whether a directory is on a file system that the kernel makes
// up; here there is none to be afraid of.
func OfKernel(*os.Root) bool { return false }
