//go:build linux

package internet

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// dns answers on one address, over UDP and TCP.
func (i *Internet) dns() error {
	at := netip.AddrPortFrom(i.host(hostDNS), 53)
	u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	i.closes(u)
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := u.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if a := i.answer(b[:n], from.String()); a != nil {
				_, _ = u.WriteToUDPAddrPort(a, from)
			}
		}
	}()
	t, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	i.closes(t)
	go i.accept(t, func(c net.Conn) {
		for {
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err != nil {
				return
			}
			b := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			a := i.answer(b, c.RemoteAddr().String())
			if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
				return
			}
		}
	})
	return nil
}

func (i *Internet) answer(b []byte, from string) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil || m.Response || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	i.log.add(Event{Kind: "dns", Name: name, What: strings.TrimPrefix(q.Type.String(), "Type"), From: from})
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired,
		RecursionAvailable: true}, Questions: m.Questions}
	addrs, known := i.zone(name, q.Type == dnsmessage.TypeA)
	switch {
	case name != "test" && !strings.HasSuffix(name, ".test"):
		out.RCode = dnsmessage.RCodeRefused // and another name server is asked
	case !known:
		out.RCode = dnsmessage.RCodeNameError
	}
	ttl := uint32(1)
	if name == "cname.test" {
		to := dnsmessage.MustNewName("hidden.cdn.test.")
		out.Answers = append(out.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: ttl},
			Body: &dnsmessage.CNAMEResource{CNAME: to}})
		q.Name = to
	}
	for _, a := range addrs {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: ttl}
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && !a.Is4():
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	packed, err := out.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// zone are the addresses of a name.
func (i *Internet) zone(name string, v4 bool) (all []netip.Addr, known bool) {
	one := func(text string) ([]netip.Addr, bool) { return []netip.Addr{netip.MustParseAddr(text)}, true }
	host := func(n byte) ([]netip.Addr, bool) { return []netip.Addr{i.host(n)}, true }
	switch name {
	case "allowed.test", "www.allowed.test":
		return host(hostWeb)
	case "other.test":
		return host(hostOther)
	case "cdn.allowed.test", "hidden.cdn.test", "cname.test":
		return host(hostFront)
	case "pypi.test", "files.pypi.test", "npm.test", "goproxy.test", "git.test":
		return host(hostPackage)
	case "api.test", "model.test":
		return host(hostModel)
	case "raw.test":
		return host(hostRaw)
	case "private.test":
		return one("10.99.0.1")
	case "loop.test":
		return one("127.0.0.1")
	case "loop6.test":
		return one("::1")
	case "meta.test":
		return one("169.254.169.254")
	case "mapped.test":
		return one("::ffff:127.0.0.1")
	case "nat64.test":
		return one("64:ff9b::7f00:1")
	case "sixtofour.test":
		return one("2002:7f00:1::1")
	case "ula.test":
		return one("fd00:99::1")
	case "zero.test":
		return one("0.0.0.0")
	case "node.test":
		return []netip.Addr{i.o.Node}, i.o.Node.IsValid()
	case "mixed.test": // of which one may be dialled
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), i.host(hostWeb), netip.MustParseAddr("::1")}, true
	case "rebind.test": // public at every second question, beginning with the first
		i.mu.Lock()
		defer i.mu.Unlock()
		if v4 {
			i.rebinds++
		}
		if i.rebinds%2 == 1 {
			return host(hostWeb)
		}
		return one("127.0.0.1")
	}
	if strings.HasSuffix(name, ".wild.allowed.test") || strings.HasSuffix(name, ".tunnel.test") {
		return host(hostWeb)
	}
	return nil, false
}
