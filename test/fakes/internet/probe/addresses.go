//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

var addresses = []probe{
	{"an address", func() (bool, string) { return reached(host(11), 80, 443, 4000, 22) }},
	{"the address of an allowed name", func() (bool, string) { return reached(host(10), 80, 443, 4000) }},
	{"an address of IPv4 in IPv6", func() (bool, string) { return reached(netip.AddrFrom16(host(11).As16()), 80, 4000) }},
	{"an address through NAT64 and 6to4", func() (bool, string) {
		b := host(11).As4()
		one := [16]byte{0: 0, 1: 0x64, 2: 0xff, 3: 0x9b, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
		two := [16]byte{0: 0x20, 1: 0x02, 2: b[0], 3: b[1], 4: b[2], 5: b[3], 15: 1}
		return both(reached(netip.AddrFrom16(one), 80))(reached(netip.AddrFrom16(two), 80))
	}},
	{"the metadata service", func() (bool, string) {
		return both(reached(netip.MustParseAddr("169.254.169.254"), 80))(reached(netip.MustParseAddr("::ffff:169.254.169.254"), 80))
	}},
	{"a private address", func() (bool, string) { return reached(netip.MustParseAddr("10.99.0.1"), 80, 4000) }},
	{"the node", func() (bool, string) {
		return both(reached(world.node, 22, 80, world.port))(reached(world.node6, world.port))
	}},
	{"the loopback of the node", func() (bool, string) {
		return both(reached(netip.MustParseAddr("127.0.0.1"), world.port))(reached(netip.IPv6Loopback(), world.port))
	}},
	{"unspecified addresses", func() (bool, string) {
		return both(reached(netip.IPv4Unspecified(), world.port))(reached(netip.IPv6Unspecified(), world.port))
	}},
	{"a port that the rule has not", func() (open bool, seen string) {
		for _, port := range []string{"22", "25", "4000", "8080", "8443"} {
			o, s := said("allowed.test:"+port, "GET / HTTP/1.0\r\nHost: allowed.test\r\n\r\n", "GET", "hello", "SSH-", "HTTP/")
			open, seen = open || o, seen+s+" "
		}
		return open, seen
	}},
	{"QUIC to an allowed name", func() (bool, string) { return datagram("allowed.test:443") }},
	{"datagrams", func() (bool, string) {
		return both(datagram(netip.AddrPortFrom(host(15), 4000).String()))(datagram(netip.AddrPortFrom(host(10), 443).String()))
	}},
	{"multicast and broadcast", func() (bool, string) { return both(datagram("224.0.0.251:5353"))(datagram("255.255.255.255:4000")) }},
	{"raw sockets", func() (open bool, seen string) {
		for _, s := range [][3]int{{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6}, {unix.AF_PACKET,
			unix.SOCK_RAW, 0x0300}} {
			fd, err := unix.Socket(s[0], s[1], s[2])
			if err == nil {
				_ = unix.Close(fd)
				open = true
			}
			seen += fmt.Sprint(err) + " "
		}
		return open, seen
	}},
	{"ping", func() (bool, string) { // what ping_group_range lets everyone make
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
		if err != nil {
			return false, fmt.Sprint(err)
		}
		defer func() { _ = unix.Close(fd) }()
		err = unix.Sendto(fd, []byte{8, 0, 0, 0, 0, 1, 0, 1}, 0, &unix.SockaddrInet4{Addr: host(11).As4()})
		return err == nil, fmt.Sprint(err)
	}},
	// What follows is of no network namespace, in kernels before the newest at least.
	{"sockets to virtual machines and their host", func() (open bool, seen string) {
		for _, cid := range []uint32{1, 2} { // this machine, the one below it
			fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return open, "no socket: " + err.Error()
			}
			seen += "a socket can be made; "
			tv := unix.NsecToTimeval(int64(time.Second))
			_ = unix.SetsockoptTimeval(fd, unix.AF_VSOCK, 6, &tv) // SO_VM_SOCKETS_CONNECT_TIMEOUT
			err = unix.Connect(fd, &unix.SockaddrVM{CID: cid, Port: uint32(max(world.port, 1))})
			seen += fmt.Sprintf("%d: %v ", cid, err)
			open = open || err == nil || errors.Is(err, unix.ECONNRESET) // the other side's word
			_ = unix.Close(fd)
		}
		return open, seen
	}},
	{"families of other networks", func() (open bool, seen string) {
		for name, f := range map[string][3]int{
			"vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "tipc": {unix.AF_TIPC, unix.SOCK_RDM, 0}, "rds": {unix.AF_RDS, unix.SOCK_SEQPACKET, 0},
			"qipcrtr":   {unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0},
			"bluetooth": {unix.AF_BLUETOOTH, unix.SOCK_RAW, 1}, "nfc": {unix.AF_NFC, unix.SOCK_SEQPACKET, 0}, "can": {unix.AF_CAN, unix.SOCK_RAW, 1},
			"phonet":     {unix.AF_PHONET, unix.SOCK_DGRAM, 0},
			"infiniband": {unix.AF_IB, unix.SOCK_STREAM, 0}, "ieee802154": {unix.AF_IEEE802154, unix.SOCK_DGRAM, 0}, "x25": {unix.AF_X25, unix.SOCK_SEQPACKET,
				0}, "appletalk": {unix.AF_APPLETALK, unix.SOCK_DGRAM, 0},
		} {
			fd, err := unix.Socket(f[0], f[1], f[2])
			if err == nil {
				_ = unix.Close(fd)
				open = true
				seen += name + " "
			}
		}
		return open, seen
	}},
}

// both is open if one of two is.
func both(open bool, seen string) func(bool, string) (bool, string) {
	return func(o bool, s string) (bool, string) { return open || o, seen + " " + s }
}

// reached connects to an address, and has it answer.
func reached(a netip.Addr, ports ...int) (open bool, seen string) {
	if !a.IsValid() {
		return false, ""
	}
	for _, p := range ports {
		if p == 0 {
			continue
		}
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(a, uint16(p)).String(), patience)
		if err != nil {
			seen += short(err) + " "
			continue
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		if p == 443 {
			open, seen = true, seen+"connected "
		} else {
			o, s := answered(c, "GET / HTTP/1.0\r\nHost: "+a.String()+"\r\n\r\n", "GET", "hello", "HTTP/1", "SSH-", "secret", "service")
			open, seen = open || o, seen+"connected: "+s+" "
		}
		_ = c.Close()
	}
	return open, seen
}

// datagram is open where one comes back; the internet's record says what has arrived.
func datagram(to string) (bool, string) {
	d := net.Dialer{Timeout: patience, Resolver: &net.Resolver{PreferGo: true}}
	c, err := d.Dial("udp", to)
	if err != nil {
		return false, short(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("\xc3\x00\x00\x00\x01secret")); err != nil {
		return false, short(err)
	}
	_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	n, err := c.Read(make([]byte, 100))
	if err != nil {
		return false, short(err)
	}
	return true, fmt.Sprintf("%d bytes", n)
}
