package jobs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Network is what a place reaches beside itself. The words of its lists are those of
// package internal/network/policy.
type Network struct {
	// Mode is [NetworkNone] or [NetworkAllow]; "" is [NetworkOpen]. Bounds count in it.
	Mode string `json:"mode,omitempty"`
	// Asked is the mode without the bounds, where these make it narrower; "" is Mode.
	Asked string `json:"asked,omitempty"`
	// Allow are the names and addresses of the mode allow; what none of them
	// matches is refused. Deny wins over them. Of connections that Opaque names the
	// first bytes are not looked at.
	Allow  []string `json:"allow,omitempty"`
	Deny   []string `json:"deny,omitempty"`
	Opaque []string `json:"opaque,omitempty"`
	// Transparent says whether programs reach it without settings:
	// [TransparentAlways], [TransparentNever]; "" is [TransparentAuto].
	Transparent string `json:"transparent,omitempty"`
	// MaxUp and MaxDown bound the bytes to and from each name, of an attempt or an opening of
	// an environment, and MaxTime how long one connection is open. 0 is no bound.
	MaxUp   Bytes         `json:"max_up_bytes,omitempty"`
	MaxDown Bytes         `json:"max_down_bytes,omitempty"`
	MaxTime time.Duration `json:"max_time_ns,omitempty"`
	// Via is who resolves and dials: [ViaLogin], or [ViaProxy] with a URL; "" is
	// [ViaNode]. It is the user's and the profile's to say, not a task's.
	Via    string        `json:"via,omitempty"`
	Phases NetworkPhases `json:"phases,omitzero"`
	// Bounds are the policies of others: what one of them refuses is refused.
	Bounds []NetworkBound `json:"bounds,omitempty"`
	// Learn allows every name and records it. It is said by a flag alone.
	Learn bool `json:"learn,omitempty"`
}

// NetworkPhases are the phases of an attempt that may have a policy of their own.
type NetworkPhases struct {
	Done   NetworkPhase `json:"done,omitzero"`
	Verify NetworkPhase `json:"verify,omitzero"`
	Build  NetworkPhase `json:"build,omitzero"`
}

// NetworkPhase is what one phase says. Without Mode and Allow these are the task's, and
// Opaque is added to the task's. The task's Deny holds in every phase.
type NetworkPhase struct {
	Mode   string   `json:"mode,omitempty"`
	Allow  []string `json:"allow,omitempty"`
	Deny   []string `json:"deny,omitempty"`
	Opaque []string `json:"opaque,omitempty"`
}

// NetworkBound is the policy of a project, profile or site, within which the place's
// stays. The mode open refuses what Deny names, and nothing else.
type NetworkBound struct {
	Origin string   `json:"origin"` // "project FILE", "profile NAME", "site FILE"
	Mode   string   `json:"mode,omitempty"`
	Allow  []string `json:"allow,omitempty"`
	Deny   []string `json:"deny,omitempty"`
	Opaque []string `json:"opaque,omitempty"`
}

// Room reports whether commands are to run in a room below the container, all of them in one. A
// daemon's containers let nothing make one.
func (p *Place) Room() bool {
	can := p.Can()
	return p.Network.Mode == NetworkAllow && p.Network.Transparent != TransparentNever && !p.Rooms && can.Here() && !can.Daemon
}

// BareProc reports whether the container's /proc has to be without covers: rooms below it have
// their own, and the kernel mounts no second /proc beside one that hides something.
func (p *Place) BareProc() bool { return p.Room() || p.Rooms }

// GuestWords are the arguments of a guest in a place.
func (p *Place) GuestWords(words []string) []string {
	if p.Room() && len(words) > 0 && words[0] == "guest" {
		return append([]string{"guest", "--room"}, words[1:]...)
	}
	return words
}

// The modes of a network, widest first.
const (
	NetworkOpen  = "open"  // what its machine reaches
	NetworkAllow = "allow" // what is on a list
	NetworkNone  = "none"  // its own loopback
)

// NetworkModes are all of them, widest first.
var NetworkModes = []string{NetworkOpen, NetworkAllow, NetworkNone}

// Words of [Network.Transparent].
const (
	TransparentAuto   = "auto" // where it can be done
	TransparentAlways = "always"
	TransparentNever  = "never"
)

// Words of [Network.Via].
const (
	ViaNode  = "node"
	ViaLogin = "login"
	ViaProxy = "proxy:" // before http://HOST:PORT, https:// or socks5h://HOST:PORT
)

// Names of the phases.
const (
	PhaseDone   = "done"
	PhaseVerify = "verify"
	PhaseBuild  = "build"
)

// PhaseCredentials stands in records of connections to the servers of credentials, which
// the supervisor makes. It is no phase of a policy.
const PhaseCredentials = "credentials"

// NetworkPhaseNames are all of them.
var NetworkPhaseNames = []string{PhaseDone, PhaseVerify, PhaseBuild}

// Of returns what a phase says; nil is that there is no phase of this name.
func (p *NetworkPhases) Of(name string) *NetworkPhase {
	switch name {
	case PhaseDone:
		return &p.Done
	case PhaseVerify:
		return &p.Verify
	case PhaseBuild:
		return &p.Build
	}
	return nil
}

// Silent reports whether a phase has the task's policy.
func (p *NetworkPhase) Silent() bool {
	return p.Mode == "" && p.Allow == nil && p.Deny == nil && p.Opaque == nil
}

// Silent reports whether all phases have the task's policy.
func (p NetworkPhases) Silent() bool {
	return !slices.ContainsFunc(NetworkPhaseNames, func(name string) bool { return !p.Of(name).Silent() })
}

// Said has the mode that a list alone means, or learning.
func (n Network) Said() Network {
	if n.Learn || n.Mode == "" && n.Allow != nil {
		n.Mode = NetworkAllow
	}
	if n.Learn {
		n.Asked = ""
	}
	return n
}

// Settled is the same network as records have it, with its bounds in the mode: the open
// one has no word, and lists without a meaning are left out. What an open network denies
// stays, and is refused where a place is settled.
func (n Network) Settled() Network {
	n = n.Said()
	own := cmp.Or(n.Asked, n.Mode, NetworkOpen)
	n.Mode, n.Asked = own, ""
	n.Bounds = slices.Clone(n.Bounds)
	for i := range n.Bounds {
		b := &n.Bounds[i]
		if b.Mode == "" && b.Allow != nil {
			b.Mode = NetworkAllow // an empty list is not recorded
		}
		if !Within(n.Mode, b.Mode) {
			n.Mode, n.Asked = b.Mode, own
		}
	}
	if own != NetworkAllow {
		n.Allow = nil
	}
	for _, name := range NetworkPhaseNames {
		if p := n.Phases.Of(name); p.Mode == "" && p.Allow != nil {
			p.Mode = NetworkAllow
		}
	}
	if n.Phases.Silent() && n.Mode != NetworkAllow {
		n.Transparent, n.Via, n.Opaque, n.MaxUp, n.MaxDown, n.MaxTime = "", "", nil, 0, 0, 0
		if own == NetworkNone {
			n.Deny = nil
		}
	}
	if n.Mode == NetworkOpen {
		n.Mode = ""
	}
	if n.Transparent == TransparentAuto {
		n.Transparent = ""
	}
	if n.Via == ViaNode {
		n.Via = ""
	}
	return n
}

// Within is the network with another bound. What has no meaning with this one alone may
// have one with the next, and stays until it is settled.
func (n Network) Within(b NetworkBound) Network {
	was := n
	n.Bounds = append(slices.Clone(n.Bounds), b)
	n = n.Settled()
	n.Via, n.Transparent, n.Opaque = was.Via, was.Transparent, was.Opaque
	n.MaxUp, n.MaxDown, n.MaxTime = was.MaxUp, was.MaxDown, was.MaxTime
	return n
}

// NarrowedBy is the origin of the bound that the mode comes from; "" is that it is the
// network's own.
func (n Network) NarrowedBy() string {
	if n = n.Settled(); n.Asked == "" {
		return ""
	}
	i := slices.IndexFunc(n.Bounds, func(b NetworkBound) bool { return b.Mode == n.Mode })
	return n.Bounds[i].Origin
}

// List is the list that decides where no more than one does: the network's own, or that
// of the bound which makes an open one narrower.
func (n Network) List() []string {
	if n.Asked != NetworkOpen {
		return n.Allow
	}
	i := slices.IndexFunc(n.Bounds, func(b NetworkBound) bool { return b.Mode == NetworkAllow })
	return n.Bounds[max(i, 0)].Allow
}

// Phase is the network of a phase, with the same bounds.
func (n Network) Phase(name string) Network {
	phases := n.Phases
	p := phases.Of(name)
	n.Phases = NetworkPhases{}
	if p == nil || p.Silent() {
		return n.Settled()
	}
	if p.Mode != "" || p.Allow != nil {
		n.Mode, n.Allow, n.Opaque, n.Asked, n.Learn = p.Mode, p.Allow, nil, "", false
	}
	n.Deny, n.Opaque = slices.Concat(n.Deny, p.Deny), slices.Concat(n.Opaque, p.Opaque)
	return n.Settled()
}

// Open reports whether nothing is refused.
func (n Network) Open() bool { return n.Settled().Mode == "" }

// NetworkOfJob is the origin of a bound that is the network of a job.
func NetworkOfJob(id string) string { return "job " + Short(id) }

// Reaches is the network of a place, also of one that was recorded when the list
// was its service's.
func (p *Place) Reaches() Network {
	if n := p.Network.Settled(); n.Mode != "" || p.External == nil || p.External.Allow == nil {
		return n
	}
	return Network{Mode: NetworkAllow, Allow: p.External.Allow}
}

// Isolated reports whether the place has a network namespace of its own, in which
// there is nothing but a loopback: what is allowed comes through the guest.
func (p *Place) Isolated() (bool, error) {
	switch mode := p.Reaches().Mode; mode {
	case "":
		return false, nil
	case NetworkNone, NetworkAllow:
		return true, nil
	default:
		return true, &Error{Kind: KindConfig, Msg: fmt.Sprintf("the record has a network mode %q, which this berth does not know", mode),
			Hint: "use the berth that has submitted it"}
	}
}

// Containment is the place's level, and a network that is not open, for people.
func (p *Place) Containment() string {
	if mode := p.Reaches().Mode; mode != "" {
		return string(p.Level) + ", network " + mode
	}
	return string(p.Level)
}

// Within reports whether a mode reaches no more than another one; "" is open.
func Within(mode, other string) bool {
	width := func(m string) int { return max(0, slices.Index(NetworkModes, m)) }
	return width(mode) >= width(other)
}

// Level is the level of a place with this network, where its backend gives l with
// an open one.
func (n Network) Level(l Level) Level {
	if l == LevelFS && !n.Open() {
		return LevelEgress
	}
	return l
}

// UnmarshalJSON reads records of before, too, where a mode was a word.
func (n *Network) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil {
		*n = Network{}
		if word != "host" {
			n.Mode = word
		}
		return nil
	}
	type plain Network // without this method
	return json.Unmarshal(b, (*plain)(n))
}
