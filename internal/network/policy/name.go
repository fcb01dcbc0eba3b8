package policy

import (
	"net/netip"
	"strconv"
	"strings"
)

const (
	maxName  = 253
	maxLabel = 63
)

// Normalise returns the form in which names are compared: lower case, without a
// final dot. It is false for what is no host name: anything but letters, digits,
// hyphens and underscores in labels of 1 to 63 bytes, and the spellings of numbers
// that inet_aton takes for an address.
func Normalise(name string) (string, bool) {
	name, fault := normalise(name)
	return name, fault == ""
}

// normalise says, too, what is wrong.
func normalise(name string) (string, string) {
	name = strings.TrimSuffix(name, ".")
	switch {
	case name == "":
		return "", "it has no name"
	case len(name) > maxName:
		return "", "the name is longer than 253 bytes"
	}
	for i := range len(name) {
		if name[i] >= 0x80 {
			return "", "write the name's ASCII form (xn--…)"
		}
	}
	name = strings.ToLower(name)
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		last = label
		switch {
		case label == "":
			return "", "a part of the name between dots is empty"
		case len(label) > maxLabel:
			return "", "a part of the name is longer than 63 bytes"
		case label[0] == '-' || label[len(label)-1] == '-':
			return "", "a part of the name begins or ends with a hyphen"
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", strconv.QuoteToASCII(string(rune(c))) + " is no character of a host name"
			}
		}
	}
	if numeric(last) {
		return "", "it is neither a name nor an address: an IPv4 address is four decimal numbers"
	}
	return name, ""
}

// numeric reports whether a name that ends with this label is taken for an address
// by inet_aton and by browsers.
func numeric(label string) bool {
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		label, digits = hex, "0123456789abcdef"
	}
	return strings.Trim(label, digits) == ""
}

// Target reads what a program inside asks for, a name or an address in its usual
// form, of IPv6 with or without brackets. It is false for everything else. An IPv4
// address within IPv6 (::ffff:0:0/96) is the IPv4 address.
func Target(host string) (name string, addr netip.Addr, ok bool) {
	inner := host
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		inner = host[1 : len(host)-1]
	}
	if a, err := netip.ParseAddr(inner); err == nil {
		if a.Zone() != "" || a.Is4() && inner != host {
			return "", netip.Addr{}, false
		}
		return "", a.Unmap(), true
	}
	name, ok = Normalise(host)
	return name, netip.Addr{}, ok
}

// Word is the rule that would allow it.
func Word(name string, addr netip.Addr, port uint16) string {
	host := name
	if name == "" {
		host = addr.String()
		if addr.Is6() {
			host = "[" + host + "]"
		}
	}
	if name != "" && isDefault(port) {
		return host
	}
	return host + ":" + strconv.Itoa(int(port))
}
