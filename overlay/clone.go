package overlay

import (
	"os"

	"berth/internal/sys/disk"
)

// sharesBlocks tells whether the file system of dir copies a file by sharing
// its blocks (ioctl_ficlone(2)): tried, because no property of a file system
// tells it.
func sharesBlocks(dir string) bool {
	from, err := os.CreateTemp(dir, prefixTemp+"clone-*")
	if err != nil {
		return false
	}
	defer func() { _, _ = from.Close(), os.Remove(from.Name()) }()
	// More than fits into the inode, where some file systems put what is small.
	if _, err := from.Write(make([]byte, 64<<10)); err != nil {
		return false
	}
	to, err := os.CreateTemp(dir, prefixTemp+"clone-*")
	if err != nil {
		return false
	}
	defer func() { _, _ = to.Close(), os.Remove(to.Name()) }()
	return disk.Clone(to, from) == nil
}
