package record

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"berth/internal/network/judge"
	"berth/internal/network/policy"
	"berth/jobs"
)

// Learned is the list that would have been enough for what was recorded.
type Learned struct {
	// Allow are its words, sorted. Where all of a bundle's were used, the bundle stands for them.
	Allow []string `json:"allow"`
	// Refused are what was wanted and is not on the list: private addresses, other ports.
	Refused []string `json:"refused,omitempty"`
	// Unseen is what the list cannot know of.
	Unseen []string `json:"unseen"`
}

// unseen holds for every run.
func unseen() []string {
	var ports []string
	for _, p := range policy.LearnPorts() {
		ports = append(ports, strconv.Itoa(int(p)))
	}
	return []string{
		"addresses that were dialled without a name",
		"ports other than " + strings.Join(ports, ", "),
		"UDP, and what is no TCP",
		"what this run did not do: another input, a cache that was full, a mirror that was not chosen",
	}
}

// Learn makes the list of the lines of a run, and of its sums, which may be nil.
func Learn(lines []Line, use *jobs.NetworkUse) Learned {
	l := Learned{Allow: []string{}, Unseen: unseen()}
	ports := map[string][]uint16{} // of each host
	refused := map[string]bool{}
	take := func(name, addr string, port uint16, allowed bool, word, reason string) {
		host, ok := hostOf(name, addr)
		switch {
		case !ok:
		case allowed && port != 0:
			ports[host] = append(ports[host], port)
		case !allowed && !strings.HasPrefix(reason, limitWord):
			if word == "" {
				word = host
			}
			refused[word] = true
		}
	}
	for i := range lines {
		if e := lines[i].Entry; e != nil && e.Phase != jobs.PhaseCredentials { // which are reached without a rule
			take(e.Name, e.Addr, e.Port, e.Decision == judge.Allowed, e.Word, e.Reason)
		}
	}
	if use != nil {
		for _, n := range use.Allowed {
			if n.Phase == jobs.PhaseCredentials {
				continue
			}
			take(n.Name, n.Name, n.Port, true, "", "")
		}
		for _, n := range use.Refused {
			take(n.Name, n.Name, n.Port, false, n.Word, n.Reason)
		}
		if more := use.Unrecorded; more > 0 {
			l.Unseen = append(l.Unseen, fmt.Sprintf("%d more decisions, which have no line: names may be missing", more))
		}
		for _, m := range use.Limits {
			l.Unseen = append(l.Unseen, "what a limit refused: "+m.What)
		}
	}
	for host, of := range ports {
		l.Allow = append(l.Allow, words(host, of)...)
	}
	l.Allow = bundled(l.Allow)
	slices.Sort(l.Allow)
	for word := range refused {
		l.Refused = append(l.Refused, word)
	}
	slices.Sort(l.Refused)
	l.Refused = l.Refused[:min(len(l.Refused), maxShown)]
	return l
}

// hostOf is the host of a rule: a name, or an address in the form that rules have.
func hostOf(name, addr string) (string, bool) {
	for _, s := range []string{name, addr} {
		if n, a, ok := policy.Target(s); ok && n != "" {
			return n, true
		} else if ok {
			return addrWord(a), true
		}
	}
	return "", false
}

func addrWord(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}

// words are those of a host: one for 443 and 80, one for all other ports.
func words(host string, ports []uint16) (out []string) {
	slices.Sort(ports)
	var rest []string
	usual := false
	for _, p := range slices.Compact(ports) {
		if p == 443 || p == 80 {
			usual = true
			continue
		}
		rest = append(rest, strconv.Itoa(int(p)))
	}
	if usual {
		out = append(out, host)
	}
	if len(rest) > 0 {
		out = append(out, host+":"+strings.Join(rest, ","))
	}
	return out
}

// bundled has bundles in the place of words, where all of a bundle's are there.
func bundled(list []string) []string {
	out := slices.Clone(list)
	for _, b := range policy.Bundles() {
		if slices.ContainsFunc(b.Words, func(w string) bool { return !slices.Contains(list, w) }) {
			continue
		}
		out = slices.DeleteFunc(out, func(w string) bool { return slices.Contains(b.Words, w) })
		out = append(out, "@"+b.Name)
	}
	return out
}

// TOML is the list as the table of a task file.
func (l Learned) TOML() string {
	var b strings.Builder
	b.WriteString("[network]\nmode = \"allow\"\nallow = [")
	for i, w := range l.Allow {
		if len(l.Allow) > 3 {
			b.WriteString("\n  ")
		} else if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString(strconv.Quote(w)) // of letters, digits, and what separates them
		if i < len(l.Allow)-1 || len(l.Allow) > 3 {
			b.WriteByte(',')
		}
	}
	if len(l.Allow) > 3 {
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	return b.String()
}
