package overlay

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// local are the magic numbers (statfs(2)) of file systems on this machine's own
// disks or memory, where a directory overlay is right in every case.
var local = []int64{
	unix.EXT4_SUPER_MAGIC,
	unix.XFS_SUPER_MAGIC,
	unix.BTRFS_SUPER_MAGIC,
	unix.TMPFS_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC,
	unix.F2FS_SUPER_MAGIC,
	0x2FC12FC1, // ZFS
}

// TakesDirectories tells whether a directory overlay can stand in dir, which
// need not exist yet. On network file systems, and on FUSE ones, the upper
// directory lacks what a FUSE overlay builds on (whiteouts, extended
// attributes, rights on a directory of mode 000 that it has just made): package
// managers then fail in mid-work. An ext3 image is right there.
func TakesDirectories(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if err == nil {
			for _, magic := range local {
				if st.Type == magic {
					return true
				}
			}
			return false
		}
		if !os.IsNotExist(err) || dir == "/" || dir == "." {
			return false
		}
	}
}
