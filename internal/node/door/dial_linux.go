package door

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"berth/internal/node/room"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// DialMain is `berth-node dial HOST PORT`: it joins its standard streams to a
// connection through the door, for ssh's ProxyCommand and whatever else wants a plain
// stream. It ends when the server has ended its direction.
func DialMain(args []string, stdin, stdout *os.File, stderr io.Writer) int {
	var to string
	if len(args) == 2 {
		if n, err := strconv.ParseUint(args[1], 10, 16); err == nil {
			to = join(args[0], uint16(n))
		}
	}
	if _, _, err := authority(to, 0); err != nil {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node dial HOST PORT")
		return jobs.CodeUsage
	}
	addr := os.Getenv(AddrVar)
	conn, err := dial(addr)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "berth: error: reach the proxy of this place, %s=%s: %v\n"+
			"berth: hint: it is there in a job or environment whose network is a list\n", AddrVar, strconv.Quote(addr), err)
		return jobs.CodeAgain
	}
	defer conn.Close()
	from := bufio.NewReader(conn)
	status, no, err := ask(conn, from, to)
	switch {
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "berth: error: %s: the proxy of this place: %v\n", to, err)
		return jobs.CodeAgain
	case status != 200:
		code, what := jobs.CodeConfig, "refused"
		if status == 503 {
			code, what = jobs.CodeAgain, "no way out now"
		}
		if no.Rule != "" {
			what += " by the rule " + no.Rule
		}
		_, _ = fmt.Fprintf(stderr, "berth: error: %s: %s\nberth: hint: %s\n", to, what, no.Hint)
		return code
	}
	go func() {
		_, _ = io.Copy(conn, stdin)
		_ = conn.CloseWrite()
	}()
	_, _ = io.Copy(stdout, from)
	return 0
}

func dial(addr string) (*room.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil || !to.Addr().Is4() {
		return nil, errors.New("it is no address")
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &room.Conn{File: os.NewFile(uintptr(fd), "proxy")}, nil
}

// ask asks the door for a connection, which it reads from afterwards.
func ask(conn io.Writer, from *bufio.Reader, to string) (status int, no refusal, err error) {
	if _, err := io.WriteString(conn, "CONNECT "+to+" HTTP/1.1\r\nHost: "+to+"\r\n\r\n"); err != nil {
		return 0, no, err
	}
	first := ""
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return 0, no, fmt.Errorf("its answer: %w", err)
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			break
		}
		if first == "" {
			first = line
		}
	}
	words := strings.SplitN(first, " ", 3)
	if len(words) < 2 {
		return 0, no, fmt.Errorf("its answer is %q", first)
	}
	if status, err = strconv.Atoi(words[1]); err != nil || status == 200 {
		return status, no, err
	}
	if err := json.NewDecoder(from).Decode(&no); err != nil {
		return 0, no, fmt.Errorf("its answer %d: %w", status, err)
	}
	return status, no, nil
}
