//go:build linux

package internet

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// sniff records the first packet of each protocol, address and port that arrives on a device,
// whoever it is for: what is refused must not even leave the machine.
func (i *Internet) sniff(device string) error {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8 // in the order of the network
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}); err != nil {
		_ = unix.Close(fd)
		return err
	}
	i.closes(os.NewFile(uintptr(fd), "packets"))
	go func() {
		seen := map[Event]bool{}
		b := make([]byte, 64<<10)
		for {
			n, from, err := unix.Recvfrom(fd, b, 0)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return
			}
			if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if e, ok := packet(b[:n]); ok && !seen[e] {
				seen[e] = true
				i.log.add(e)
			}
		}
	}()
	return nil
}

// packet is what is recorded of one, without the sender's port.
func packet(b []byte) (e Event, ok bool) {
	if len(b) == 0 {
		return e, false
	}
	var to, from netip.Addr
	var proto int
	switch b[0] >> 4 {
	case 4:
		h, err := ipv4.ParseHeader(b)
		if err != nil || h.Len > len(b) {
			return e, false
		}
		to, _ = netip.AddrFromSlice(h.Dst.To4())
		from, _ = netip.AddrFromSlice(h.Src.To4())
		proto, b = h.Protocol, b[h.Len:]
	case 6:
		h, err := ipv6.ParseHeader(b)
		if err != nil || len(b) < ipv6.HeaderLen {
			return e, false
		}
		to, _ = netip.AddrFromSlice(h.Dst)
		from, _ = netip.AddrFromSlice(h.Src)
		proto, b = h.NextHeader, b[ipv6.HeaderLen:]
		if proto == 0 || proto == unix.IPPROTO_ICMPV6 && (len(b) == 0 || b[0] >= 130) {
			return e, false // neighbours and groups: the kernel's own
		}
	default:
		return e, false
	}
	e = Event{Kind: "packet", To: to.String(), From: from.String(), What: fmt.Sprintf("protocol %d", proto)}
	switch name := map[int]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[proto]; {
	case name != "" && len(b) >= 4:
		e.What = name
		e.To = netip.AddrPortFrom(to, uint16(b[2])<<8|uint16(b[3])).String()
	case proto == unix.IPPROTO_ICMP:
		if lateAnswer(b) {
			return Event{}, false
		}
		e.What = "icmp"
	}
	return e, true
}

// lateAnswer says whether an ICMP message is the kernel's own to an answer of a name server for
// which nobody waits any more: its port is unreachable (type 3, code 3).
func lateAnswer(b []byte) bool {
	if len(b) < 8 || b[0] != 3 || b[1] != 3 {
		return false
	}
	h, err := ipv4.ParseHeader(b[8:])
	if err != nil || h.Protocol != unix.IPPROTO_UDP || len(b) < 8+h.Len+2 {
		return false
	}
	udp := b[8+h.Len:]
	return int(udp[0])<<8|int(udp[1]) == 53
}
