package images

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// fileStamp changes when anything about a file does: no program can set the time
// of its last change of status, which is changed.
func fileStamp(path string) (stamp string, changed time.Time) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return "", time.Time{}
	}
	return stampOf(&st)
}

// openStamp is the same of a file that is open: opened, a network file system
// tells what it is now, and not what it was some seconds ago.
func openStamp(f *os.File) (stamp string, changed time.Time) {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return "", time.Time{}
	}
	return stampOf(&st)
}

func stampOf(st *syscall.Stat_t) (stamp string, changed time.Time) {
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim), time.Unix(st.Ctim.Unix())
}
