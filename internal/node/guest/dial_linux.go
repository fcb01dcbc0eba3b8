package guest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"berth/jobs"
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
	var conn net.Conn
	var failed error
	for _, host := range []string{"127.0.0.1", "::1"} { // some servers listen on one of them alone
		c, err := net.DialTimeout("tcp", net.JoinHostPort(host, args[0]), 10*time.Second)
		if err == nil {
			conn = c
			break
		}
		if failed == nil {
			failed = err
		}
	}
	if conn == nil {
		var op *net.OpError
		if errors.As(failed, &op) {
			failed = op.Err
		}
		_, _ = fmt.Fprintln(stderr, failed)
		return jobs.CodeAgain
	}
	go func() {
		_, _ = io.Copy(conn, stdin)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(stdout, conn)
	_ = conn.Close()
	return 0
}
