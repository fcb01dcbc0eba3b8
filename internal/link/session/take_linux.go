package session

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TakeFrom says which process of this machine the guest is: from it connections of
// commands are taken where the kernel allows that (5.6, and the right to trace it). Without
// it their bytes come in frames.
func (s *Session) TakeFrom(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	if old := s.net.guest.Swap(os.NewFile(uintptr(fd), "guest")); old != nil {
		_ = old.Close()
	}
}

// take gets the guest's connection with this number. What a guest offers may be anything
// that it has open, so it is looked at.
func (n *network) take(number int) (*connection, error) {
	guest := n.guest.Load()
	if guest == nil {
		return nil, errors.New("it is not known which process the guest is")
	}
	raw, err := guest.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if failed := raw.Control(func(pidfd uintptr) { fd, err = unix.PidfdGetfd(int(pidfd), number, 0) }); err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	err = isConnection(fd)
	if err == nil && fd > mostDescriptors() {
		err = errors.New("too many files are open")
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	c := &connection{file: os.NewFile(uintptr(fd), "connection")}
	c.raw, err = c.file.SyscallConn()
	return c, err
}

// mostDescriptors is half of what this process may have open: the other half is for the
// servers that the connections lead to.
var mostDescriptors = sync.OnceValue(func() int {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(l.Cur/2, 1<<20))
})

func isConnection(fd int) error {
	for _, o := range []struct{ option, want, or int }{
		{unix.SO_DOMAIN, unix.AF_INET, unix.AF_INET6}, {unix.SO_TYPE, unix.SOCK_STREAM, unix.SOCK_STREAM},
		{unix.SO_PROTOCOL, unix.IPPROTO_TCP, unix.IPPROTO_TCP},
	} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option); err != nil || got != o.want && got != o.or {
			return errors.New("what the guest offers is no connection")
		}
	}
	return nil
}

// connection is a command's that was taken. Whether a call waits is said with each, because
// a guest that has it open, too, could change that for the descriptor.
type connection struct {
	file *os.File
	raw  syscall.RawConn
}

func (c *connection) Read(p []byte) (n int, err error) {
	if n, err = c.call(c.raw.Read, unix.SYS_RECVFROM, p, unix.MSG_DONTWAIT); n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// await waits until there is something to read.
func (c *connection) await() error {
	_, err := c.call(c.raw.Read, unix.SYS_RECVFROM, make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_PEEK)
	return err
}

func (c *connection) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		var n int
		n, err = c.call(c.raw.Write, unix.SYS_SENDTO, p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		written, p = written+n, p[n:]
	}
	return written, err
}

// socketCall is recvfrom(2) or sendto(2) without an address.
func socketCall(number, fd uintptr, p []byte, flags uintptr) (int, error) {
	for {
		n, _, errno := unix.Syscall6(number, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// call is one system call, which is tried again when the descriptor is ready for it.
func (c *connection) call(ready func(func(fd uintptr) bool) error, number uintptr, p []byte, flags uintptr) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	failed := ready(func(fd uintptr) bool {
		n, err = socketCall(number, fd, p, flags)
		return !errors.Is(err, unix.EAGAIN)
	})
	if failed != nil {
		err = failed
	}
	return max(n, 0), err
}

func (c *connection) closeWrite() (err error) {
	if failed := c.raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) }); failed != nil {
		return failed
	}
	return err
}

// close wakes what waits, also where the descriptor was made to wait in the kernel.
func (c *connection) close() {
	_ = c.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	_ = c.file.Close()
}
