package transfer

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// inode tells files apart that have several names.
type inode struct {
	device, number uint64
	links          uint64
}

func inodeOf(fi fs.FileInfo) (inode, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, false
	}
	return inode{device: st.Dev, number: st.Ino, links: uint64(st.Nlink)}, true //nolint:unconvert // 32 bits on arm64
}

// OfKernel tells whether a directory is on a file system that the kernel makes
// up, where files have no size, or no end, or do things when they are opened.
func OfKernel(root *os.Root) bool {
	f, err := root.Open(".")
	if err != nil {
		return false
	}
	defer f.Close()
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return false
	}
	switch uint32(st.Type) { // signed or not, by the architecture
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC,
		unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.BPF_FS_MAGIC, unix.PSTOREFS_MAGIC,
		unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC, unix.EFIVARFS_MAGIC, fusectlMagic, configfsMagic, mqueueMagic:
		return true
	}
	return false
}

// Magic numbers that x/sys has no name for, see statfs(2).
const (
	fusectlMagic  = 0x65735543
	configfsMagic = 0x62656570
	mqueueMagic   = 0x19800202
)
