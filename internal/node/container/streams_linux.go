package container

import (
	"os"

	"golang.org/x/sys/unix"
)

// holdsAll tells whether a process has all these files open, as the same open
// files (kcmp(2)). known is false where the kernel, or a filter around this process,
// does not tell.
func holdsAll(pid int, files []*os.File) (holds, known bool) {
	const (
		kcmpFile = 0
		most     = 32 // a guest that speaks has hardly more
	)
	for _, f := range files {
		conn, err := f.SyscallConn() // which another goroutine may close meanwhile
		if err != nil {
			return false, false
		}
		found, told := false, true
		err = conn.Control(func(own uintptr) {
			for fd := uintptr(0); fd < most && !found && told; fd++ {
				r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), kcmpFile, own, fd, 0)
				found, told = errno == 0 && r == 0, errno == 0 || errno == unix.EBADF
			}
		})
		switch {
		case err != nil || !told:
			return false, false
		case !found:
			return false, true
		}
	}
	return true, len(files) > 0
}
