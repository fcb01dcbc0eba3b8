package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxPorts is how many ports a word may name.
const maxPorts = 32

// Rule is one name, wildcard, address or network, with ports.
type Rule struct {
	name  string       // "" for an address or network
	below bool         // names below it, not itself
	net   netip.Prefix // of an address all of its bits
	ports []uint16     // sorted; nil where the word has none
	// Bundle is the word (@pip) of the bundle that the rule is of, or "".
	Bundle string
	// From says who added it, where this is not the origin of the policy.
	From string
}

// A WordError is a word that is no rule.
type WordError struct {
	List string // allow, deny, opaque or mode, where it is known
	Word string
	Why  string
}

func (e *WordError) Error() string {
	if e.List != "" {
		return e.List + ": " + strconv.QuoteToASCII(e.Word) + ": " + e.Why
	}
	return strconv.QuoteToASCII(e.Word) + ": " + e.Why
}

// Parse reads a word of allow or opaque. A bundle is several rules.
func Parse(word string) ([]Rule, error) { return parse(word, false) }

// ParseDeny reads a word of deny. Without ports it is about all of them.
func ParseDeny(word string) ([]Rule, error) { return parse(word, true) }

func parse(word string, deny bool) ([]Rule, error) {
	if name, ok := strings.CutPrefix(word, "@"); ok {
		return expand(name, deny)
	}
	r, why := parseOne(word, deny)
	if why != "" {
		return nil, &WordError{Word: word, Why: why}
	}
	return []Rule{r}, nil
}

// expand are the rules of a bundle.
func expand(name string, deny bool) ([]Rule, error) {
	for _, b := range bundles {
		if b.Name != name {
			continue
		}
		var out []Rule
		for _, word := range b.Words {
			r, why := parseOne(word, deny)
			if why != "" {
				return nil, &WordError{Word: word, Why: why}
			}
			r.Bundle = "@" + name
			out = append(out, r)
		}
		return out, nil
	}
	var names []string
	for _, b := range bundles {
		names = append(names, "@"+b.Name)
	}
	return nil, &WordError{Word: "@" + name, Why: "there is no such bundle; there are " + strings.Join(names, " ")}
}

// parseOne returns a rule, or what is wrong with the word.
func parseOne(word string, deny bool) (r Rule, why string) {
	host, ports, why := split(word)
	if why != "" {
		return r, why
	}
	if r.ports, why = parsePorts(ports); why != "" {
		return r, why
	}
	if strings.ContainsRune(host, '/') {
		if r.net, why = parseNetwork(host); why == "" && r.ports == nil && !deny {
			why = "a network needs a port: " + word + ":443"
		}
		return r, why
	}
	if a, err := netip.ParseAddr(host); err == nil {
		r.net, why = parseAddress(a, deny)
		return r, why
	}
	rest, below := strings.CutPrefix(host, "*.")
	switch {
	case host == "*":
		return r, "it would be every name: say mode = \"open\" for that"
	case strings.ContainsRune(rest, '*'):
		return r, "* stands for whole parts of a name, at its beginning: *.example.org"
	}
	r.below = below
	r.name, why = normalise(rest)
	return r, why
}

// split cuts the ports off, and the brackets of IPv6.
func split(word string) (host, ports, why string) {
	switch {
	case word == "":
		return "", "", "it is empty"
	case strings.Contains(word, "://"):
		return "", "", "it is a URL: write the host name alone"
	}
	if rest, ok := strings.CutPrefix(word, "["); ok {
		host, ports, ok = strings.Cut(rest, "]")
		if !ok || ports != "" && ports[0] != ':' || ports == ":" {
			return "", "", "write an IPv6 address as [2001:db8::7]:443"
		}
		if !strings.ContainsRune(host, ':') {
			return "", "", "brackets are for IPv6 addresses"
		}
		return host, strings.TrimPrefix(ports, ":"), ""
	}
	host, ports, ok := strings.Cut(word, ":")
	switch {
	case strings.ContainsRune(ports, ':'):
		return "", "", "write a host and its ports as HOST:PORT,PORT, and an IPv6 address in brackets: [2001:db8::7]:443"
	case ok && ports == "":
		return "", "", "there is no port behind the colon"
	}
	return host, ports, ""
}

func parsePorts(list string) (out []uint16, why string) {
	if list == "" {
		return nil, ""
	}
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(word, 10, 16)
		if err != nil || n == 0 || word[0] == '0' {
			return nil, strconv.QuoteToASCII(word) + " is no port: ports are numbers from 1 to 65535"
		}
		out = append(out, uint16(n))
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) > maxPorts {
		return nil, "it names more than " + strconv.Itoa(maxPorts) + " ports"
	}
	return out, ""
}

func parseNetwork(host string) (netip.Prefix, string) {
	p, err := netip.ParsePrefix(host)
	switch {
	case err != nil:
		return p, "it is no network: write one as 10.1.0.0/16:443 or [2001:db8::/32]:443, and a URL as its host name alone"
	case p.Addr().Is4In6():
		return p, "write the IPv4 network"
	case p != p.Masked():
		return p, "the address has bits beyond the network's length: " + p.Masked().String()
	}
	return p, ""
}

func parseAddress(a netip.Addr, deny bool) (p netip.Prefix, why string) {
	switch c := Forbidden(a); {
	case a.Zone() != "":
		return p, "an address with a zone (%) is not supported"
	case a.Is4In6():
		return p, "write the IPv4 address: " + a.Unmap().String()
	case !deny && (c == "unspecified" || c == "multicast" || c == "broadcast"):
		return p, "it is no address of a machine (" + c + ")"
	}
	return netip.PrefixFrom(a, a.BitLen()), ""
}

// String is the word, in the form in which words are compared.
func (r Rule) String() string {
	var b strings.Builder
	if r.Bundle != "" {
		b.WriteString(r.Bundle + " ")
	}
	switch {
	case r.name != "":
		if r.below {
			b.WriteString("*.")
		}
		b.WriteString(r.name)
	default:
		host := r.net.String()
		if r.net.IsSingleIP() {
			host = r.net.Addr().String()
		}
		if r.net.Addr().Is6() {
			host = "[" + host + "]"
		}
		b.WriteString(host)
	}
	for i, p := range r.ports {
		b.WriteByte(":,"[min(i, 1)])
		b.WriteString(strconv.Itoa(int(p)))
	}
	return b.String()
}

// Wildcard is the name below which the rule has every name.
func (r Rule) Wildcard() (name string, ok bool) { return r.name, r.below }

// Ports are those of a rule of allow or opaque.
func (r Rule) Ports() []uint16 {
	if r.ports == nil {
		return []uint16{80, 443}
	}
	return slices.Clone(r.ports)
}

func isDefault(port uint16) bool { return port == 443 || port == 80 }

// hasPort reports whether it is about the port; rules of deny without ports are
// about all.
func (r *Rule) hasPort(port uint16, all bool) bool {
	if r.ports == nil {
		return all || isDefault(port)
	}
	return slices.Contains(r.ports, port)
}

// hasName compares by labels.
func (r *Rule) hasName(name string) bool {
	if r.name == "" || !r.below {
		return r.name != "" && r.name == name
	}
	rest, ok := strings.CutSuffix(name, r.name)
	return ok && len(rest) > 1 && rest[len(rest)-1] == '.'
}

func (r *Rule) hasAddr(a netip.Addr) bool { return r.name == "" && r.net.Contains(a) }

// opens reports whether the rule lets through an address of the class.
func (r *Rule) opens(a netip.Addr, class string) bool {
	if !r.hasAddr(a) {
		return false
	}
	if r.net.IsSingleIP() {
		return true
	}
	return (class == private || class == shared) && Forbidden(r.net.Addr()) == class && Forbidden(last(r.net)) == class
}

// last is the last address of a network.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
