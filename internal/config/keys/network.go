package keys

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"berth/internal/config/strict"
	"berth/internal/network/policy"
	"berth/jobs"
)

// networkMode reads a mode of a network; "host" is another word for open.
func networkMode(v strict.Value) string {
	if raw, _ := v.Raw(); raw == "host" {
		return jobs.NetworkOpen
	}
	return v.OneOf(jobs.NetworkModes...)
}

// reachable reads a list of what can be reached. An empty one is nothing, and not
// the same as none.
func reachable(v strict.Value) any { return rules(v, false) }

// refused reads a list of what is refused.
func refused(v strict.Value) any { return rules(v, true) }

func rules(v strict.Value, deny bool) []string {
	out := []string{}
	for _, item := range v.Items("names") {
		if s := item.Text(); s != "" && Rule(item, s, deny) {
			out = append(out, s)
		}
	}
	return out
}

// Rule complains about a word that is none of a network's lists.
func Rule(v strict.Value, word string, deny bool) bool {
	parse := policy.Parse
	if deny {
		parse = policy.ParseDeny
	}
	_, err := parse(word)
	if _, not := netip.ParsePrefix(word); err == nil || not == nil {
		return true // a network without a port is one of a service's: see settlePlace
	}
	if e, ok := err.(*policy.WordError); ok { //nolint:errorlint // parse returns no other
		v.Failf("", "is no rule of a network, %s: %s", strconv.QuoteToASCII(word), e.Why)
	}
	return false
}

// phaseFields are the keys of the phases' own tables.
func phaseFields() (out []Field) {
	for _, name := range jobs.NetworkPhaseNames {
		phase := func(p *jobs.Place) *jobs.NetworkPhase { return p.Network.Phases.Of(name) }
		out = append(out,
			Field{Name: "network." + name + ".mode", In: func(p *jobs.Place) any { return &phase(p).Mode },
				Read: func(v strict.Value) any { return networkMode(v) },
				Task: true, Jobs: sandboxed, Usual: jobs.NetworkOpen},
			Field{Name: "network." + name + ".allow", In: func(p *jobs.Place) any { return &phase(p).Allow },
				Read: reachable, Task: true, Jobs: sandboxed},
			Field{Name: "network." + name + ".deny", In: func(p *jobs.Place) any { return &phase(p).Deny },
				Read: refused, Adds: true, Task: true, Jobs: sandboxed},
			Field{Name: "network." + name + ".opaque", In: func(p *jobs.Place) any { return &phase(p).Opaque },
				Read: reachable, Task: true, Jobs: sandboxed})
	}
	return out
}

// Via complains about a way out that is none; "" is that it is one. It is recorded, so
// that it holds no password.
func Via(s string) string {
	if s == jobs.ViaNode || s == jobs.ViaLogin {
		return ""
	}
	rest, proxy := strings.CutPrefix(s, jobs.ViaProxy)
	u, err := url.Parse(rest)
	switch {
	case strings.Contains(s, "@"):
		return "must not hold a user or a password: it is recorded with each job"
	case !proxy || err != nil ||
		u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5h" || u.Path != "" && u.Path != "/" || u.RawQuery+u.Fragment != "":
		return `must be "node", "login", or a proxy such as "proxy:http://proxy.example.org:3128" ` +
			`or "proxy:socks5h://proxy.example.org:1080", found ` + strconv.QuoteToASCII(s)
	}
	if _, port, err := net.SplitHostPort(u.Host); err != nil || port == "" || u.Hostname() == "" {
		return "names a proxy without a host and a port: " + strconv.QuoteToASCII(s)
	}
	return ""
}
