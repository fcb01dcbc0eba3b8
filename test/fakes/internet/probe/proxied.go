//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// proxied are the probes of a proxy on loopback: HTTP, and SOCKS5 on the same port.
func proxied(proxy string) (all []probe) {
	connect := func(target string) (bool, string) {
		open, seen := through(proxy, fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target), "HTTP/1.1 200", "HTTP/1.0 200")
		return open, seen
	}
	add := func(name string, try func() (bool, string)) { all = append(all, probe{name, try}) }
	add("CONNECT to other names", func() (open bool, seen string) {
		for _, t := range []string{"other.test:443", "OTHER.test.:443", "hidden.cdn.test:443", "x.allowed.test:443", "allowed.test.other.test:443",
			"allowed.test@other.test:443", "localhost:443", "c2VjcmV0.tunnel.test:443"} {
			o, s := connect(t)
			open, seen = open || o, seen+t+": "+s+" "
		}
		return open, seen
	})
	add("CONNECT to other ports", func() (open bool, seen string) {
		for _, port := range []string{"25", "22", "4000", "8080", "0", "65536", "-1", "0443", "443x", ""} {
			o, s := connect("allowed.test:" + port)
			open, seen = open || o, seen+port+": "+s+" "
		}
		return open, seen
	})
	add("CONNECT to addresses in every spelling", func() (open bool, seen string) {
		b := host(11).As4()
		n := binary.BigEndian.Uint32(b[:])
		for _, t := range []string{
			host(11).String(), fmt.Sprint(n), fmt.Sprintf("%#x", n), fmt.Sprintf("0%o", n), fmt.Sprintf("%#x.%#x.%#x.%#x", b[0], b[1], b[2], b[3]),
			fmt.Sprintf("0%o.0%o.0%o.0%o", b[0], b[1], b[2], b[3]),
			fmt.Sprintf("%d.%d", b[0], n&0xffffff), fmt.Sprintf("%d.%d.%d", b[0], b[1], n&0xffff), fmt.Sprintf("%d.%d.%d.%d.", b[0], b[1], b[2], b[3]),
			fmt.Sprintf("[::ffff:%s]", host(11)), fmt.Sprintf("::ffff:%s", host(11)),
			fmt.Sprintf("[::ffff:%x:%x]", n>>16, n&0xffff), fmt.Sprintf("[64:ff9b::%x:%x]", n>>16, n&0xffff), fmt.Sprintf("[2002:%x:%x::1]", n>>16, n&0xffff),
			fmt.Sprintf("[%s]", host(11)), fmt.Sprintf("[::%s]", host(11)),
			"127.0.0.1", "127.1", "0x7f.1", "0177.1", "2130706433", "[::1]", "[::]", "0", "0.0.0.0", "[::ffff:127.0.0.1]", "[::1%25lo]", "[fe80::1%eth0]",
			"169.254.169.254", "[::ffff:a9fe:a9fe]", "0xa9fea9fe", "2852039166", "10.99.0.1", world.node.String(),
			"１２７.0.0.1", "127。0。0。1",
		} {
			for _, port := range []int{80, max(world.port, 1)} {
				o, s := connect(fmt.Sprintf("%s:%d", t, port))
				if open = open || o; o {
					seen += t + ": " + s + " "
				}
			}
		}
		return open, seen
	})
	add("requests for other names", func() (open bool, seen string) {
		for _, text := range []string{
			"GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n", "GET http://other.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
			"GET http://allowed.test@other.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
			"GET http://" + front + "/ HTTP/1.1\r\nHost: " + hidden + "\r\n\r\n", "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
			"GET ftp://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n", "GET https://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
			"GET http://other.test:4000/ HTTP/1.1\r\nHost: other.test:4000\r\n\r\n", "GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
			"GET http://" + host(11).String() + "/ HTTP/1.1\r\nHost: " + host(11).String() + "\r\n\r\n",
			fmt.Sprintf("GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%[1]d\r\n\r\n", max(world.port, 1)),
		} {
			o, s := through(proxy, text, "hello", "secret", "service of the node")
			open, seen = open || o, seen+s+" "
		}
		return open, seen
	})
	add("another host in a second request", func() (bool, string) {
		return through(proxy, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
			"hello from other.test")
	})
	add("another name in TLS behind CONNECT", func() (bool, string) {
		c, err := dial(proxy)
		if err != nil {
			return false, short(err)
		}
		defer func() { _ = c.Close() }()
		if ok, s := answered(c, "CONNECT "+front+":443 HTTP/1.1\r\nHost: "+front+":443\r\n\r\n", "\r\n\r\n"); !ok {
			return false, s
		}
		return secret(c, hidden, hidden)
	})
	add("another host behind CONNECT to 80", func() (bool, string) {
		return through(proxy, fmt.Sprintf("CONNECT %s:80 HTTP/1.1\r\nHost: %[1]s:80\r\n\r\n"+request, front, hidden), "hello from "+hidden)
	})
	add("SOCKS to other names and addresses", func() (open bool, seen string) {
		for _, t := range []string{"other.test", hidden, "c2VjcmV0.tunnel.test", "0x7f.1", "2130706433", "localhost", "127.0.0.1", host(11).String(),
			"169.254.169.254", "10.99.0.1", "::1", "::ffff:127.0.0.1", world.node.String()} {
			o, s := socks(proxy, t, 80, 1)
			open, seen = open || o, seen+t+": "+s+" "
		}
		o, s := socks(proxy, "allowed.test", 25, 1)
		open, seen = open || o, seen+"25: "+s
		return open, seen
	})
	add("SOCKS to listen, and for datagrams", func() (bool, string) {
		return both(socks(proxy, "allowed.test", 80, 2))(socks(proxy, "allowed.test", 443, 3))
	})
	add("allowed names of refused addresses", func() (open bool, seen string) {
		for _, n := range []string{"private", "loop", "loop6", "meta", "mapped", "nat64", "sixtofour", "ula", "zero", "node"} {
			for _, port := range []int{80, max(world.port, 1)} {
				o, s := through(proxy, fmt.Sprintf("GET http://%s.test:%d/ HTTP/1.1\r\nHost: %[1]s.test:%[2]d\r\n\r\n", n, port), "hello", "secret", "service of the node")
				if open = open || o; o {
					seen += n + ": " + s + " "
				}
			}
		}
		return open, seen
	})
	add("a flood of half requests", func() (bool, string) {
		var open []net.Conn
		for range world.many {
			if c, err := dial(proxy); err == nil {
				_, _ = io.WriteString(c, "CONNECT allowed.test:443 HT")
				open = append(open, c)
			}
		}
		ok, s := through(proxy, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "hello from allowed.test")
		for _, c := range open {
			_ = c.Close()
		}
		for until := time.Now().Add(15 * time.Second); !ok && time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
			ok, s = through(proxy, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "hello from allowed.test")
		}
		return !ok, s
	})
	return all
}

func through(proxy, text string, words ...string) (bool, string) { return said(proxy, text, words...) }

// socks asks for a host on a port with a command of SOCKS5; a success is open.
func socks(proxy, to string, port int, command byte) (bool, string) {
	c, err := dial(proxy)
	if err != nil {
		return false, short(err)
	}
	defer func() { _ = c.Close() }()
	b := make([]byte, 300)
	if _, err := c.Write([]byte{5, 1, 0}); err != nil {
		return false, short(err)
	}
	if _, err := io.ReadFull(c, b[:2]); err != nil || b[1] != 0 {
		return false, fmt.Sprint("no SOCKS here: ", err)
	}
	q := []byte{5, command, 0}
	switch a, err := netip.ParseAddr(to); {
	case err != nil:
		q = append(append(q, 3, byte(len(to))), to...)
	case a.Is4():
		q = append(append(q, 1), a.AsSlice()...)
	default:
		q = append(append(q, 4), a.AsSlice()...)
	}
	if _, err := c.Write(binary.BigEndian.AppendUint16(q, uint16(port))); err != nil {
		return false, short(err)
	}
	if _, err := io.ReadFull(c, b[:4]); err != nil {
		return false, short(err)
	}
	return b[1] == 0, fmt.Sprint("reply ", b[1])
}
