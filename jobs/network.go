package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Network is what a place reaches beside itself.
type Network struct {
	Mode string `json:"mode,omitempty"` // [NetworkNone] or [NetworkAllow]; "" is [NetworkOpen]
	// Allow are the names and addresses of the mode allow; what none of them
	// matches is refused.
	Allow []string `json:"allow,omitempty"`
	// Transparent says whether commands run in a room, in which connections need no
	// setting: [TransparentAlways], [TransparentNever], or "" where one can be made.
	Transparent string `json:"transparent,omitempty"`
}

// The values of [Network].Transparent.
const (
	TransparentAuto   = "auto" // is "" in records
	TransparentAlways = "always"
	TransparentNever  = "never"
)

// Room reports whether commands are to run in a room below the container. A daemon's
// containers let nothing make one.
func (p *Place) Room() bool {
	can := p.Can()
	return p.Network.Mode == NetworkAllow && p.Network.Transparent != TransparentNever && can.Here() && !can.Daemon
}

// PhaseDone is the phase of the done commands; that of the task has no name.
const PhaseDone = "done"

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

// Said has the mode that a list alone means.
func (n Network) Said() Network {
	if n.Mode == "" && n.Allow != nil {
		n.Mode = NetworkAllow
	}
	return n
}

// Settled is the same network as records have it: the open one has no word, and other
// modes than allow have no list.
func (n Network) Settled() Network {
	if n = n.Said(); n.Mode == NetworkOpen {
		n.Mode = ""
	}
	if n.Mode != NetworkAllow {
		n.Allow = nil
	}
	return n
}

// Open reports whether nothing is refused.
func (n Network) Open() bool { return n.Settled().Mode == "" }

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
