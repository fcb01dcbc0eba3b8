package guest

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// VerbDial is the guest's word for a process that joins its streams to a port.
const VerbDial = "dial"

// DialMain is `berth-node dial PORT`, which the guest starts: it joins its standard
// streams to what listens on this TCP port of the loopback, in the network that
// commands have. It ends when the service has closed its connection.
func DialMain(args []string, stdin, stdout *os.File, stderr io.Writer) int {
	port := 0
	if len(args) == 1 {
		port, _ = strconv.Atoi(args[0])
	}
	if port < 1 || port > 65535 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node dial PORT")
		return jobs.CodeUsage
	}
	fd, err := dialLoopback(port)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return jobs.CodeAgain
	}
	conn := os.NewFile(uintptr(fd), "service")
	go func() {
		_, _ = io.Copy(conn, stdin)
		_ = unix.Shutdown(fd, unix.SHUT_WR)
	}()
	_, _ = io.Copy(stdout, conn)
	return 0
}

// dialLoopback connects to a port. Some servers listen on one address of the loopback
// alone. Package net is as large as a tenth of this program, and not needed for it.
func dialLoopback(port int) (fd int, err error) {
	for _, to := range []struct {
		family int
		addr   unix.Sockaddr
	}{
		{unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}},
		{unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}},
	} {
		fd, failed := unix.Socket(to.family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if failed == nil {
			if failed = unix.Connect(fd, to.addr); failed == nil {
				return fd, nil
			}
			_ = unix.Close(fd)
		}
		if err == nil {
			err = failed
		}
	}
	return -1, err
}
