//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

var names = []probe{
	{"a question for a name of a tunnel", func() (bool, string) {
		return asked("udp", servers(), question("c2VjcmV0.tunnel.test", dnsmessage.TypeA))
	}},
	{"a question over TCP", func() (bool, string) {
		return asked("tcp", servers(), question("c2VjcmV0.tunnel.test", dnsmessage.TypeA))
	}},
	{"a question below an allowed name", func() (bool, string) {
		return asked("udp", servers(), question("c2VjcmV0.allowed.test", dnsmessage.TypeA))
	}},
	{"questions of other types", func() (open bool, seen string) {
		for _, t := range []dnsmessage.Type{dnsmessage.TypeTXT, dnsmessage.TypeMX, dnsmessage.TypeNS, dnsmessage.TypeSRV, dnsmessage.TypeCNAME,
			dnsmessage.TypeSOA, 10, 64, 65, 255} {
			o, s := asked("udp", servers(), question("c2VjcmV0.tunnel.test", t))
			open, seen = open || o, seen+s+" "
		}
		return open, seen
	}},
	{"a question to another server", func() (bool, string) {
		return asked("udp", []string{host(53).String(), host(11).String(), "1.1.1.1", "8.8.8.8", world.node.String()},
			question("c2VjcmV0.denied.tunnel.test", dnsmessage.TypeA))
	}},
	{"names that are none", func() (open bool, seen string) {
		for _, labels := range [][]string{
			{"allowed.test"}, {"allowed\x00", "test"}, {"allowed", "test\x00.tunnel.test"}, {"allowed test"}, {"allowed%", "test"}, {"allowed", "test "},
			{"xn--", "allowed", "test"},
			{strings.Repeat("a", 63), strings.Repeat("b", 63), strings.Repeat("c", 63), strings.Repeat("d", 61)}, {"0x7f", "1"}, {"2130706433"}, {"*",
				"allowed", "test"},
		} {
			o, s := asked("udp", servers(), raw(labels, dnsmessage.TypeA))
			open, seen = open || o, seen+s+" "
		}
		return open, seen
	}},
}

// servers are those of resolv.conf.
func servers() (all []string) {
	b, _ := os.ReadFile("/etc/resolv.conf")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			all = append(all, f[1])
		}
	}
	if len(all) == 0 {
		all = []string{"127.0.0.1"}
	}
	return all
}

func question(name string, kind dnsmessage.Type) []byte {
	return raw(strings.Split(name, "."), kind)
}

// raw writes a question whose labels may be anything.
func raw(labels []string, kind dnsmessage.Type) []byte {
	b := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, l := range labels {
		b = append(append(b, byte(len(l))), l...)
	}
	b = binary.BigEndian.AppendUint16(append(b, 0), uint16(kind))
	return append(b, 0, 1)
}

// asked sends a question to servers; an answer with something in it is open.
func asked(network string, to []string, q []byte) (open bool, seen string) {
	var all []string
	for _, s := range to {
		m, err := ask(network, s, q)
		switch {
		case err != nil:
			all = append(all, short(err))
		default:
			all = append(all, strings.TrimPrefix(m.RCode.String(), "RCode"))
			open = open || m.RCode == dnsmessage.RCodeSuccess && len(m.Answers) > 0
		}
	}
	return open, strings.Join(all, " ")
}

func ask(network, server string, q []byte) (m dnsmessage.Message, err error) {
	c, err := net.DialTimeout(network, net.JoinHostPort(server, "53"), 2*time.Second)
	if err != nil {
		return m, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	b := make([]byte, 4096)
	n := 0
	if network == "tcp" {
		if _, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)); err != nil {
			return m, err
		}
		if _, err = io.ReadFull(c, b[:2]); err != nil {
			return m, err
		}
		n = int(binary.BigEndian.Uint16(b))
		if n > len(b) {
			return m, errors.New("a long answer")
		}
		_, err = io.ReadFull(c, b[:n])
	} else if _, err = c.Write(q); err == nil {
		n, err = c.Read(b)
	}
	if err != nil {
		return m, err
	}
	return m, m.Unpack(b[:n])
}

// resolved asks as a program of Go does.
func resolved(name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return (&net.Resolver{PreferGo: true}).LookupHost(ctx, name)
}

// short is an error without the addresses that are in the name of the probe.
func short(err error) string {
	var no *net.DNSError
	if errors.As(err, &no) && no.IsNotFound {
		return "NXDOMAIN"
	}
	var e *net.OpError
	if errors.As(err, &e) {
		return e.Op + ": " + fmt.Sprint(e.Err)
	}
	return err.Error()
}
