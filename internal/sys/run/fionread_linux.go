package run

import "golang.org/x/sys/unix"

// fionread asks how many bytes wait in a pipe; see pipe(7) and ioctl_tty(2).
const fionread = unix.TIOCINQ
