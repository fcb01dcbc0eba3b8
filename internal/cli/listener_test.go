package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// listener is "listener FILE": a server inside, whose port is in the file. To each
// client it says what that has sent, in capitals, once it has sent all. "listener ask
// ADDRESS" is such a client, which sends its standard input.
func listener(args []string) int {
	fail := func(err error) int {
		_, _ = fmt.Fprintln(os.Stderr, "listener:", err)
		return 1
	}
	if len(args) == 2 && args[0] == "ask" {
		c, err := net.Dial("tcp", strings.TrimSpace(args[1]))
		if err != nil {
			return fail(err)
		}
		if _, err = io.Copy(c, os.Stdin); err == nil {
			err = c.(*net.TCPConn).CloseWrite()
		}
		if err == nil {
			_, err = io.Copy(os.Stdout, c)
		}
		if err != nil {
			return fail(err)
		}
		return 0
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	if err := os.WriteFile(args[0], fmt.Append(nil, l.Addr().(*net.TCPAddr).Port), 0o600); err != nil {
		return fail(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return fail(err)
		}
		go func() {
			defer func() { _ = c.Close() }()
			b, _ := io.ReadAll(c)
			_, _ = c.Write(bytes.ToUpper(b))
		}()
	}
}
