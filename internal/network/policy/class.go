package policy

import (
	"net/netip"
	"slices"
)

// Classes that a rule with a network opens.
const (
	private = "private"
	shared  = "shared"
)

const metadata = "metadata service"

// Forbidden names the class for which an address is refused; "" is a public address.
// An IPv4 address inside of an IPv6 one (v4-mapped, NAT64, 6to4, Teredo) counts.
func Forbidden(a netip.Addr) (class string) {
	if a = a.Unmap().WithZone(""); a.Is4() {
		return forbidden4(a.As4())
	}
	if class = forbidden6(a); class != "" {
		return class
	}
	for _, e := range embedded(a) {
		if class = forbidden4(e.As4()); class != "" {
			return class + ", inside of an IPv6 address"
		}
	}
	return ""
}

func forbidden4(b [4]byte) string {
	switch {
	case b[0] == 127:
		return "loopback"
	case b[0] == 0:
		return "unspecified"
	case b == [4]byte{168, 63, 129, 16}, // Azure
		b == [4]byte{100, 100, 100, 200}, // Alibaba
		b == [4]byte{192, 0, 0, 192}:     // Oracle
		return metadata
	case b[0] == 169 && b[1] == 254:
		return "link-local"
	case b[0] == 10, b[0] == 172 && b[1]&0xf0 == 16, b[0] == 192 && b[1] == 168:
		return private
	case b[0] == 100 && b[1]&0xc0 == 64:
		return shared
	case b[0] == 198 && b[1]&0xfe == 18:
		return "benchmarking"
	case b[0] == 192 && b[1] == 0 && b[2] == 2, b[0] == 198 && b[1] == 51 && b[2] == 100, b[0] == 203 && b[1] == 0 && b[2] == 113:
		return "documentation"
	case b[0] == 192 && b[1] == 0 && b[2] == 0, b[0] == 192 && b[1] == 88 && b[2] == 99:
		return "reserved"
	case b[0]&0xf0 == 224:
		return "multicast"
	case b == [4]byte{255, 255, 255, 255}:
		return "broadcast"
	case b[0] >= 240:
		return "reserved"
	}
	return ""
}

// forbidden6 judges what is not of IPv4 in it. Of the whole space 2000::/3 is given
// to machines of the internet; NAT64 is outside of it.
func forbidden6(a netip.Addr) string {
	b := a.As16()
	switch {
	case a.IsLoopback():
		return "loopback"
	case a.IsUnspecified():
		return "unspecified"
	case b == [16]byte{0: 0xfd, 2: 0x0e, 3: 0xc2, 14: 0x02, 15: 0x54}, // Amazon: fd00:ec2::254
		b == [16]byte{0: 0xfd, 1: 0x20, 3: 0xce, 14: 0x02, 15: 0x54}: // Google: fd20:ce::254
		return metadata
	case b[0]&0xfe == 0xfc:
		return private
	case a.IsLinkLocalUnicast():
		return "link-local"
	case b[0] == 0xff:
		return "multicast"
	case nat64(b):
		return ""
	case b[0]&0xe0 != 0x20:
		return "reserved"
	case b[0] == 0x20 && b[1] == 0x01 && b[2] == 0x0d && b[3] == 0xb8, b[0] == 0x3f && b[1] == 0xff && b[2]&0xf0 == 0:
		return "documentation"
	case b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 2 && b[4] == 0 && b[5] == 0:
		return "benchmarking"
	case b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3]&0xf0 == 0x10:
		return "reserved"
	}
	return ""
}

// nat64 is 64:ff9b::/96.
func nat64(b [16]byte) bool {
	return b[0] == 0 && b[1] == 0x64 && b[2] == 0xff && b[3] == 0x9b && [8]byte(b[4:12]) == [8]byte{}
}

// embedded are the IPv4 addresses in one of IPv6, as a tunnel or translator would
// take them out: two in Teredo's (its server, and the client, inverted).
func embedded(a netip.Addr) []netip.Addr {
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	four := func(i int, flip byte) netip.Addr {
		return netip.AddrFrom4([4]byte{b[i] ^ flip, b[i+1] ^ flip, b[i+2] ^ flip, b[i+3] ^ flip})
	}
	switch {
	case a.Is4In6(), nat64(b):
		return []netip.Addr{four(12, 0)}
	case b[0] == 0x20 && b[1] == 0x02:
		return []netip.Addr{four(2, 0)}
	case b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0:
		return []netip.Addr{four(4, 0), four(12, 0xff)}
	}
	return nil
}

// class is Forbidden, with the addresses of this machine.
func class(a netip.Addr, own []netip.Addr) string {
	if c := Forbidden(a); c != "" && c != private && c != shared {
		return c
	}
	mine := func(a netip.Addr) bool {
		return slices.ContainsFunc(own, func(o netip.Addr) bool { return o.Unmap().WithZone("") == a })
	}
	if mine(a) || slices.ContainsFunc(embedded(a), mine) {
		return "this machine's own"
	}
	return Forbidden(a)
}
