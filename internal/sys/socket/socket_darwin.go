package socket

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// open makes a socket. The lock keeps a command that is started meanwhile from
// inheriting it.
func open() (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	return settle(fd)
}

// settle gives a socket what Linux has flags for.
func settle(fd int) (int, error) {
	unix.CloseOnExec(fd)
	err := unix.SetNonblock(fd, true)
	if err == nil {
		// A write to a client that has left is an error and no signal.
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, os.NewSyscallError("socket", err)
	}
	return fd, nil
}

func acceptNow(fd int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for {
		nfd, _, err := unix.Accept(fd)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return -1, err
		default:
			return settle(nfd)
		}
	}
}

// peer is the user of the other side (unix(4), LOCAL_PEERCRED).
func peer(fd int) (uid int, err error) {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return -1, err
	}
	return int(c.Uid), nil
}
