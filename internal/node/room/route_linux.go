package room

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The addresses of names: those of benchmarks (RFC 2544), which no network routes,
// and a part of IPv6 that is anybody's own. Nothing is given from the second yet.
var (
	Fakes  = netip.MustParsePrefix("198.18.0.0/15")
	Fakes6 = netip.MustParsePrefix("fd00:198::/32")
)

// ownAddress is one of lo, which is no name's. Without one besides the loopback's, C
// libraries tell programs that there is no IPv4 (AI_ADDRCONFIG of getaddrinfo).
var ownAddress = netip.MustParseAddr("198.19.255.254")

// loopback is the number of lo in each network namespace.
const loopback = 1

// maxResolvers bounds what is taken from /etc/resolv.conf; C libraries ask the first three.
const maxResolvers = 8

// resolvers reads the name servers that programs ask. Without one they ask the loopback.
func resolvers() ([]netip.Addr, error) {
	b, err := readConf("/etc/resolv.conf")
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("find the name servers of the container: %w", err)
	}
	return parseResolvers(string(b)), nil
}

// readConf reads a small file, which may be an image's: it waits for nothing, and what is no
// regular file, such as /dev/null, is empty.
func readConf(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxConf))
}

// maxConf bounds it.
const maxConf = 1 << 20

func parseResolvers(text string) (all []netip.Addr) {
	named := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" || len(all) == maxResolvers {
			continue
		}
		named = true
		a, err := netip.ParseAddr(f[1])
		// An address of a link needs an interface, of which there is none.
		if a = a.Unmap(); err != nil || a.Zone() != "" || a.IsMulticast() || slices.Contains(all, a) {
			continue
		}
		if a.IsUnspecified() { // is the loopback to a client
			a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		all = append(all, a)
	}
	if !named {
		all = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	return all
}

// connect begins the network of the room: all addresses that it knows are its own.
func (r *Room) connect(literals []netip.Prefix) error {
	n, err := openNetlink()
	if err != nil {
		return fmt.Errorf("speak with the kernel of routes: %w", err)
	}
	defer n.close()
	if err := n.up(loopback); err != nil {
		return fmt.Errorf("set the room's loopback up: %w", err)
	}
	if err := n.address(loopback, ownAddress); err != nil {
		return fmt.Errorf("give the room's loopback an address: %w", err)
	}
	if err := n.local(Fakes); err != nil {
		return err
	}
	r.IPv6 = n.local(Fakes6) == nil
	r.Resolvers = slices.DeleteFunc(r.Resolvers, func(a netip.Addr) bool { return a.Is6() && !r.IPv6 })
	for _, a := range r.Resolvers {
		literals = append(slices.Clip(literals), netip.PrefixFrom(a, a.BitLen()))
	}
	for _, p := range literals {
		if err := n.local(p); err != nil {
			return err
		}
	}
	return nil
}

// loopbackUp sets the loopback of the room up.
func loopbackUp() error {
	n, err := openNetlink()
	if err != nil {
		return fmt.Errorf("speak with the kernel of routes: %w", err)
	}
	defer n.close()
	if err := n.up(loopback); err != nil {
		return fmt.Errorf("set the room's loopback up: %w", err)
	}
	return nil
}

// Route makes addresses the room's own.
func (r *Room) Route(to netip.Prefix) error {
	n, err := openNetlink()
	if err != nil {
		return fmt.Errorf("speak with the kernel of routes: %w", err)
	}
	defer n.close()
	return n.local(to)
}

// netlink is a conversation with the kernel, see rtnetlink(7).
type netlink struct{ fd int }

func openNetlink() (netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	return netlink{fd}, err
}

func (n netlink) close() { _ = unix.Close(n.fd) }

// up sets an interface up.
func (n netlink) up(index uint32) error {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], index)
	binary.NativeEndian.PutUint32(b[8:], unix.IFF_UP)  // the flags
	binary.NativeEndian.PutUint32(b[12:], unix.IFF_UP) // which of them change
	return n.order(unix.RTM_NEWLINK, 0, b)
}

// address gives an interface one of IPv4.
func (n netlink) address(index uint32, a netip.Addr) error {
	b := []byte{unix.AF_INET, byte(a.BitLen()), 0, unix.RT_SCOPE_HOST}
	b = attribute(binary.NativeEndian.AppendUint32(b, index), unix.IFA_LOCAL, a.AsSlice())
	return n.order(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b)
}

func attribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	return append(binary.NativeEndian.AppendUint16(b, kind), value...)
}

// local has packets to these addresses go to this network namespace itself. An
// address of the loopback does already.
func (n netlink) local(to netip.Prefix) error {
	if to = to.Masked(); to.Addr().IsLoopback() {
		return nil
	}
	family := byte(unix.AF_INET)
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := []byte{family, byte(to.Bits()), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	b = attribute(b, unix.RTA_DST, to.Addr().AsSlice())
	b = attribute(b, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, loopback))
	if err := n.order(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make a local route to %s: %w", to, err)
	}
	return nil
}

// order sends one order, and returns the kernel's answer.
func (n netlink) order(kind, flags uint16, body []byte) error {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = append(append(b, make([]byte, 8)...), body...) // its number, and the sender's
	if err := unix.Sendto(n.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4<<10)
	got, err := retry(func() (int, error) { return unix.Read(n.fd, answer) })
	if err != nil {
		return err
	}
	if got < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return unix.EPROTO
	}
	if no := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); no != 0 {
		return unix.Errno(-no)
	}
	return nil
}
