package wayout

import (
	"io"
	"net"
	"net/netip"
	"os"
	"testing"

	"berth/internal/sys/socket"
)

// What comes by way of a relay on this machine, and what the same stream carries bare.
func BenchmarkDown(b *testing.B) {
	const size = 1 << 20
	send := func(c net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}
	b.Run("relay", func(b *testing.B) {
		r, dir := supervisor(b, interval)
		relay(b, r, dir, newWorld(b, send))
		c, err := r.Dial(b.Context(), "tcp", netip.MustParseAddrPort("93.184.216.34:443"))
		if err != nil {
			b.Fatal(err)
		}
		read(b, c, size)
	})
	b.Run("node", func(b *testing.B) {
		c, err := Node().Dial(b.Context(), "tcp", newWorld(b, send).server.Addr().(*net.TCPAddr).AddrPort())
		if err != nil {
			b.Fatal(err)
		}
		read(b, c, size)
	})
	b.Run("stream", func(b *testing.B) {
		_, dir := supervisor(b, interval)
		path := dir + "/s"
		l, err := socket.Listen(path)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if err := os.Chmod(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		c, err := socket.Dial(b.Context(), path)
		if err != nil {
			b.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			buf := make([]byte, 64<<10)
			for {
				if _, err := s.Write(buf); err != nil {
					return
				}
			}
		}()
		read(b, c, size)
		_ = s.Close()
	})
}

func read(b *testing.B, c io.ReadCloser, size int) {
	b.Helper()
	b.SetBytes(int64(size))
	buf := make([]byte, 16<<10)
	for b.Loop() {
		for n := 0; n < size; {
			m, err := c.Read(buf)
			if err != nil {
				b.Fatal(err)
			}
			n += m
		}
	}
	_ = c.Close()
}
