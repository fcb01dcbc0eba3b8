package cli

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// loopbackUser returns the user whose process has the other end of a TCP connection
// that was accepted on this machine's loopback, as the kernel lists it
// (proc_net_tcp). Without an open socket at the other end it is an error.
func loopbackUser(conn *net.TCPConn) (uid int, err error) {
	peer, self := addrOf(conn.RemoteAddr()), addrOf(conn.LocalAddr())
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // there is none for IPv6 where that is off
		}
		uid, ok := ownerOf(bufio.NewScanner(f), peer, self)
		_ = f.Close()
		if ok {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("the kernel lists no open socket of %s", peer)
}

// addrOf is the address of an end, without the way in which it is written.
func addrOf(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// ownerOf looks for the socket that is the local end of a connection. A socket that
// no process has any more has the inode 0, and the user 0 whoever had it.
func ownerOf(lines *bufio.Scanner, local, remote netip.AddrPort) (uid int, ok bool) {
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[9] == "0" {
			continue
		}
		if l, ok := parseAddr(f[1]); !ok || l != local {
			continue
		}
		if r, ok := parseAddr(f[2]); !ok || r != remote {
			continue
		}
		uid, err := strconv.Atoi(f[7])
		return uid, err == nil
	}
	return 0, false
}

// parseAddr reads an address as the kernel prints it: words of 32 bits in the order of
// this machine's bytes, and the port.
func parseAddr(s string) (a netip.AddrPort, ok bool) {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	if err != nil || len(b)%4 != 0 {
		return a, false
	}
	for word := range slices.Chunk(b, 4) {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	ip, ok := netip.AddrFromSlice(b)
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), ok && err == nil
}
