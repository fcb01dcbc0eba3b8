package container

import (
	"os"

	"golang.org/x/sys/unix"
)

// roomy makes a pipe take as much as a guest may have on its way, and the end of
// its command behind that: what a guest has told can be read by a process that
// stood still, also when the guest has left. Without it the pipe stays as it is.
func roomy(f *os.File, size int) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size) })
	}
}
