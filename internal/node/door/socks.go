package door

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// SOCKS5 (RFC 1928).
const (
	socksVersion  = 5
	socksNoMethod = 0xff // none of the ways to say who one is

	socksGranted     = 0
	socksFailed      = 1
	socksForbidden   = 2
	socksNoCommand   = 7
	socksNoAddresses = 8
)

// readGreeting reads the first message, and tells whether no password is among the
// methods that it offers.
func readGreeting(b []byte) (size int, plain, more bool) {
	if len(b) < 2 || len(b) < 2+int(b[1]) {
		return 0, false, true
	}
	size = 2 + int(b[1])
	return size, bytes.IndexByte(b[2:size], 0) >= 0, false
}

// readSOCKS reads the second message, or returns what refuses it.
func readSOCKS(b []byte) (o opening, more bool, reply byte) {
	if len(b) > 0 && b[0] != socksVersion || len(b) > 2 && b[2] != 0 {
		return o, false, socksFailed
	}
	if len(b) < 5 {
		return o, true, 0
	}
	if b[1] != 1 { // CONNECT; BIND and UDP are not for what is judged here
		return o, false, socksNoCommand
	}
	at, size := 4, 0
	switch b[3] {
	case 1:
		size = 4
	case 3:
		at, size = 5, int(b[4])
	case 4:
		size = 16
	default:
		return o, false, socksNoAddresses
	}
	if o.size = at + size + 2; len(b) < o.size {
		return o, true, 0
	}
	o.host, o.port = string(b[at:at+size]), binary.BigEndian.Uint16(b[at+size:])
	if b[3] != 3 {
		a, _ := netip.AddrFromSlice(b[at : at+size])
		o.host = a.String()
	} else if a, err := netip.ParseAddr(o.host); !isPlain(o.host) && (err != nil || a.Zone() != "") {
		return o, false, socksFailed
	}
	if o.port == 0 {
		return o, false, socksFailed
	}
	return o, false, 0
}

// socksReply has no address: what the connection has is not told.
func socksReply(code byte) []byte { return []byte{socksVersion, code, 0, 1, 0, 0, 0, 0, 0, 0} }

// socks is the answer to a request of SOCKS.
func (o opening) socks(d Decision) []byte {
	switch d.Verdict {
	case Allowed:
		return socksReply(socksGranted)
	case Unavailable:
		return socksReply(socksFailed)
	default:
		return socksReply(socksForbidden)
	}
}
