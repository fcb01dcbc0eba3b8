package socket

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// open makes a socket.
func open() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	return fd, os.NewSyscallError("socket", err)
}

func acceptNow(fd int) (int, error) {
	for {
		nfd, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if !errors.Is(err, unix.EINTR) {
			return nfd, err
		}
	}
}

// peer is the user of the other side (unix(7)).
func peer(fd int) (uid int, err error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return -1, err
	}
	return int(c.Uid), nil
}
