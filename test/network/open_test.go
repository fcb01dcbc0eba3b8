//go:build linux

package network

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/test/fakes/internet"
)

// probeArgs tell the probe where it is.
func probeArgs(more ...string) []string {
	return append([]string{"-node", internet.NodeAddr, "-port", strconv.Itoa(loopPort), "-abstract", abstract, "-socket", socketPath()}, more...)
}

// closed are the probes that hold on the node itself: what they try needs rights that an
// ordinary user does not have, a server that heeds what it is told, or a network with more in it.
var closed = []string{
	"a question below an allowed name", "questions of other types", "names that are none", "another name in TLS on port 80", "no TLS on 443",
	"two hosts", "two hosts, the other way round",
	"a folded host", "chunks, oddly written", "one of several addresses", "an address through NAT64 and 6to4", "QUIC to an allowed name",
	"multicast and broadcast", "raw sockets", "ping",
	"tracing the first process", "the first process in /proc", "memory and files of the first process", "limits of the first process",
	"signals to the first process",
	"namespaces of the first process", "namespaces of any process", "root of a new user namespace", "a new network namespace", "routes and devices",
	// These depend on the kernel.
	"sockets to virtual machines and their host", "families of other networks", "io_uring", "devices of other networks",
}

// TestProbesSee: all other ways out are open without a container, and the probe says so. One that
// could not tell would be of no use.
func TestProbesSee(t *testing.T) {
	needNode(t)
	got := run(t, command(t, append([]string{filepath.Join(top, "bin", "probe")}, probeArgs("-many", "50")...)...))
	all, err := internet.ReadProbes(got.out)
	if len(all) < 60 || got.code != 0 || err != nil {
		t.Errorf("%d lines, exit code %d, %v: %s", len(all), got.code, err, got.err)
	}
	for _, p := range all {
		flood := strings.HasPrefix(p.Name, "a flood ") // is open where nothing works afterwards
		if want := !flood && !slices.Contains(closed, p.Name); !p.Open && want || p.Open && flood {
			t.Errorf("%s: open %t: %s", p.Name, p.Open, p.Seen)
		}
	}
	// And the internet has seen what has arrived.
	seen := arrived(t, 0)
	for _, e := range []internet.Event{
		{Kind: "dns", Name: "c2vjcmv0.tunnel.test", What: "A"}, {Kind: "tcp", To: internet.Other + ":4000"}, {Kind: "tls", Name: "hidden.cdn.test",
			To: "11.22.33.12:443"}, {Kind: "http", Name: "hidden.cdn.test", What: "GET /", To: "11.22.33.12:80"},
		{Kind: "packet", To: "11.22.33.10:443", What: "udp"}, {Kind: "packet", To: internet.Metadata + ":80", What: "tcp"}, {Kind: "packet",
			To: internet.Private + ":4000", What: "tcp"}, {Kind: "packet", To: "1.1.1.1:53", What: "udp"},
	} {
		if !slices.ContainsFunc(seen, func(s internet.Event) bool {
			return s.Kind == e.Kind && s.Name == e.Name && s.What == e.What && (s.To == e.To || e.To == "")
		}) {
			t.Errorf("not in the record of the internet: %+v", e)
		}
	}
}
