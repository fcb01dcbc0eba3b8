package overlay

import (
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// exchange swaps two names in one step (renameat2(2)).
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// makeNode makes a special file below root.
func makeNode(root *os.Root, name string, mode uint32) error {
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Mknodat(int(dir.Fd()), path.Base(name), mode, 0)
}

// setLinkTime gives a symbolic link its time.
func setLinkTime(root *os.Root, name string, t time.Time) error {
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.UtimesNanoAt(int(dir.Fd()), path.Base(name), []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
