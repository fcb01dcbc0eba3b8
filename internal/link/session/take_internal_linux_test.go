package session

import (
	"net"
	"os"
	"strings"
	"testing"
)

// Connections are taken as long as there are descriptors for their servers, too.
func TestTakeFew(t *testing.T) {
	before := mostDescriptors
	defer func() { mostDescriptors = before }()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	_ = raw.Control(func(fd uintptr) { number = int(fd) })
	s := &Session{}
	s.TakeFrom(os.Getpid())
	for most, want := range map[int]string{2: "too many files are open", 1 << 20: ""} {
		mostDescriptors = func() int { return most }
		c, err := s.net.take(number)
		if err == nil {
			c.close()
		}
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", most, err)
		}
	}
	_ = s.net.guest.Load().Close()
}
