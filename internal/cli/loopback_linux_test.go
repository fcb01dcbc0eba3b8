package cli

import (
	"net"
	"os"
	"testing"
)

// The user at the other end of a connection is found, whichever family its socket is
// of, and only while it has the socket open.
func TestLoopbackUser(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, address := range []string{l.Addr().String(), "[::ffff:127.0.0.1]:" + l.Addr().String()[len("127.0.0.1:"):]} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if uid, err := loopbackUser(got.(*net.TCPConn)); err != nil || uid != os.Getuid() {
			t.Errorf("%s: user %d, %v", address, uid, err)
		}
		_ = c.Close()
		if uid, err := loopbackUser(got.(*net.TCPConn)); err == nil {
			t.Errorf("%s: user %d of a closed socket", address, uid)
		}
		_ = got.Close()
	}
}
