package guest

import (
	"errors"

	"berth/internal/link/wire"

	"golang.org/x/sys/unix"
)

// proveTime is how long the loopback may take to refuse, in milliseconds.
const proveTime = 1000

// prove tries what must fail in a place with nothing but a loopback, and returns what
// did not. The kernel says at once that there is no route: what is not refused then has
// left, whether it is answered or not.
func prove(p *wire.Proof) (reached []string) {
	for _, t := range []struct {
		what   string
		family int
		to     unix.Sockaddr
		waits  bool // for an answer, which the own loopback gives
	}{
		{"an address outside, 1.1.1.1:443", unix.AF_INET, &unix.SockaddrInet4{Port: 443, Addr: [4]byte{1, 1, 1, 1}}, false},
		{"an address outside, [2606:4700:4700::1111]:443", unix.AF_INET6, &unix.SockaddrInet6{Port: 443,
			Addr: [16]byte{0x26, 0x06, 0x47, 0, 0x47, 0, 14: 0x11, 15: 0x11}}, false},
		{"the metadata address, 169.254.169.254:80", unix.AF_INET, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{169, 254, 169, 254}}, false},
		{"the loopback of its machine", unix.AF_INET, &unix.SockaddrInet4{Port: p.Port, Addr: [4]byte{127, 0, 0, 1}}, true},
		{"an abstract socket of its machine", unix.AF_UNIX, &unix.SockaddrUnix{Name: "@" + p.Abstract}, true},
	} {
		if connects(t.family, t.to, t.waits) {
			reached = append(reached, t.what)
		}
	}
	return reached
}

func connects(family int, to unix.Sockaddr, waits bool) bool {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	err = unix.Connect(fd, to)
	if !errors.Is(err, unix.EINPROGRESS) {
		return err == nil || errors.Is(err, unix.EAGAIN)
	}
	if !waits {
		return true
	}
	events := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(events, proveTime); n <= 0 || err != nil {
		return false // its own loopback always answers: nothing does
	}
	failed, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return err == nil && failed == 0
}
