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

// NoNetwork is the error of a backend that has the modes open and none alone.
func (p *Place) NoNetwork() error {
	return &Error{Kind: KindConfig, Msg: fmt.Sprintf("network mode %q is not available on the backend %s", p.Reaches().Mode, p.Backend),
		Hint: `make it "none", or "open"; the backends modal and daytona have lists of what is allowed`}
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
