package engine

import (
	"cmp"
	"net/netip"
	"strings"

	"berth/internal/network"
	"berth/jobs"
)

// settleNetwork settles what a place reaches, with the bound of its profile, and refuses
// what its backend cannot hold.
func settleNetwork(p *jobs.Place) error {
	p.Network.Phases.Build = jobs.NetworkPhase{} // its image is built by now
	boundProfile(p)
	p.Network = p.Network.Settled()
	n, can := p.Network, p.Can()
	for _, name := range append([]string{""}, jobs.NetworkPhaseNames...) {
		if what := deniedInOpen(n.Phase(name)); what != "" {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: what + `: not held in the mode "open", in which nothing is looked at`,
				Hint: `make the mode "allow", with the names that are needed, or "none"; where it is said: berth config show --origin`}
		}
	}
	switch {
	case n.Mode != jobs.NetworkAllow && n.Phases.Silent() || can.Bare:
		return nil // what a bare host has not is refused with its other keys
	case can.OtherHost:
		return onService(p)
	}
	if _, _, err := network.Policies(n); err != nil {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error(), Hint: "the words of a network: berth network bundles, berth help --page network"}
	}
	if can.Daemon && n.Transparent == jobs.TransparentAlways {
		return absent(`[network] transparent = "always"`, p)
	}
	return nil
}

// boundProfile adds what the profile says of the network of a place.
func boundProfile(p *jobs.Place) {
	p.Network.Via = cmp.Or(p.Network.Via, p.Profile.Via)
	if b := p.Profile.Network; b.Mode != "" || b.Allow != nil || b.Deny != nil {
		b.Origin = cmp.Or(b.Origin, "profile "+p.Profile.Name)
		p.Network = p.Network.Within(b)
	}
}

// narrowed says, for people, that a network is not the one that was asked for.
func narrowed(p *jobs.Place) []string {
	by := p.Network.NarrowedBy()
	if by == "" {
		return nil
	}
	return []string{"network " + p.Network.Mode + ": " + by + " says so; " + p.Network.Asked + " was asked for"}
}

// deniedInOpen names what an open network is to refuse, and what says so; "" is nothing.
func deniedInOpen(n jobs.Network) string {
	if n.Mode != "" {
		return ""
	}
	if len(n.Deny) > 0 {
		return "[network] deny"
	}
	for _, b := range n.Bounds {
		if len(b.Deny) > 0 {
			return "[network] deny of " + b.Origin
		}
	}
	return ""
}

// onService refuses what the list of a service cannot say: it has names and networks,
// and holds one list.
func onService(p *jobs.Place) error {
	n := p.Network
	for _, what := range []struct {
		name string
		said bool
	}{
		{"[network] of a phase", !n.Phases.Silent()}, {"[network] deny", len(n.Deny) > 0}, {"[network] opaque", len(n.Opaque) > 0},
		{"[network] transparent", n.Transparent != ""}, {"[network] max_up, max_down or max_time", n.MaxUp+n.MaxDown > 0 || n.MaxTime > 0},
	} {
		if what.said {
			return absent(what.name, p)
		}
	}
	lists := 0
	for _, b := range n.Bounds {
		if len(b.Deny) > 0 || b.Mode == jobs.NetworkAllow && (n.Asked == "" || lists > 0) {
			return absent("[network] of "+b.Origin+", beside another list", p)
		}
		if b.Mode == jobs.NetworkAllow {
			lists++
		}
	}
	for _, word := range n.List() {
		switch _, err := netip.ParsePrefix(word); {
		case err == nil:
		case strings.HasPrefix(word, "@"):
			return absent("[network] allow: the bundle "+word, p)
		case strings.ContainsRune(word, ':'):
			if _, err := netip.ParseAddr(word); err != nil {
				return absent("[network] allow: the port in "+word, p)
			}
		}
	}
	p.Network.Via = "" // the service's own
	return nil
}
