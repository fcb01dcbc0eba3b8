//go:build linux

package internet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Refused are names of addresses that no name may lead to, on the ports 80 and LoopPort.
var Refused = []string{"private.test", "loop.test", "loop6.test", "meta.test", "mapped.test", "nat64.test", "sixtofour.test", "ula.test", "zero.test",
	"node.test"}

// LoopPort is that of a service on the loopback of the node, which no task may reach.
const LoopPort = 8099

// Allowed are the words of the list that the probe expects.
func Allowed() []string {
	words := []string{
		"allowed.test", "www.allowed.test", "cdn.allowed.test", "*.wild.allowed.test", "mixed.test", fmt.Sprintf("rebind.test:80,%d", LoopPort),
		"raw.test:4000", "cname.test", "api.test",
		"pypi.test", "files.pypi.test", "npm.test", "goproxy.test", "git.test:443,22",
	}
	for _, name := range Refused {
		words = append(words, fmt.Sprintf("%s:80,%d", name, LoopPort))
	}
	return words
}

// Stray are the events that a supervisor has no reason for, whose task has that list: all is stray
// that is not a question for an allowed name, or a connection to its address and ports.
func Stray(base string, all []Event) (stray []Event) {
	i := &Internet{o: Options{Base: netip.MustParsePrefix(base)}}
	var fine []string
	for host, ports := range map[byte][]int{hostWeb: {80, 443}, hostFront: {80, 443}, hostPackage: {80, 443, 22}, hostModel: {80, 443}, hostRaw: {4000},
		hostDNS: {53}} {
		for _, p := range ports {
			fine = append(fine, fmt.Sprintf("tcp %s:%d", i.host(host), p))
		}
	}
	fine = append(fine, fmt.Sprintf("udp %s:53", i.host(hostDNS)))
	names := slices.Clone(Refused)
	for _, w := range Allowed() {
		name, _, _ := strings.Cut(w, ":")
		names = append(names, name)
	}
	for _, e := range all {
		switch {
		case e.Kind == "packet" && slices.Contains(fine, e.What+" "+e.To), e.Kind == "tcp" && slices.Contains(fine, "tcp "+e.To), e.Kind == "ssh":
		case e.Kind == "packet" && e.What == "protocol 2" && e.To == "224.0.0.22" && e.From == i.host(1).String(): // the bridge itself says which multicast it listens to
		case e.Kind == "dns" && e.Name != "test" && !strings.HasSuffix(e.Name, ".test"): // the machine's own
		case (e.Kind == "dns" || e.Kind == "tls" || e.Kind == "http") && (slices.Contains(names, e.Name) || strings.HasSuffix(e.Name, ".wild.allowed.test")):
		default:
			stray = append(stray, e)
		}
	}
	return stray
}

// Probed is a line of the probe.
type Probed struct {
	Name, Seen string
	Open       bool
}

// ReadProbes reads what the probe has printed.
func ReadProbes(out string) (all []Probed, err error) {
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(f) != 3 || !slices.Contains([]string{"held", "open"}, f[1]) {
			return all, fmt.Errorf("no line of a probe: %q", line)
		}
		all = append(all, Probed{f[0], f[2], f[1] == "open"})
	}
	return all, nil
}
