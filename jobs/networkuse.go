package jobs

import (
	"strconv"
	"time"
)

// NetworkUse is what an attempt or an environment did with its network, summed up from
// network.jsonl. Its lists and texts are bounded, and what is in them is printable.
type NetworkUse struct {
	Door  string `json:"door,omitempty"` // [DoorTransparent] or [DoorProxy]; "" is not known
	Flows int    `json:"flows"`          // that were carried
	// Opaque are those of which nothing in the bytes said whose server it was.
	Opaque int   `json:"opaque_flows,omitempty"`
	Up     Bytes `json:"up_bytes"`
	Down   Bytes `json:"down_bytes"`
	// Allowed are the names that were allowed, those with the most bytes first, and
	// Refused the others, the last one first.
	Allowed []NetworkName `json:"allowed,omitempty"`
	Refused []NetworkName `json:"refused,omitempty"`
	// MoreAllowed and MoreRefused count decisions on names that are not among them.
	MoreAllowed int            `json:"more_allowed,omitempty"`
	MoreRefused int            `json:"more_refused,omitempty"`
	Limits      []NetworkLimit `json:"limits,omitempty"` // that were met
	// Models is what was asked of models until now, of a task that runs.
	Models *Usage `json:"models,omitempty"`
	// Added are words that the user has added meanwhile.
	Added []string `json:"added,omitempty"`
	// Unrecorded are decisions that are in the sums and have no line.
	Unrecorded int      `json:"unrecorded_lines,omitempty"`
	Notes      []string `json:"notes,omitempty"`
}

// How commands reach the judge of their network.
const (
	DoorTransparent = "transparent" // by names and connections, without a setting
	DoorProxy       = "proxy"       // by the proxy that variables name
)

// NetworkName are the decisions on one name, or on an address that was asked for as such.
type NetworkName struct {
	Phase string `json:"phase,omitempty"`
	Name  string `json:"name"`
	Port  uint16 `json:"port,omitempty"` // 0 is a question for the name
	Count int    `json:"count"`
	// Failed are connections that were allowed and not made, and Reason why the last one was not
	// carried to its end.
	Failed int    `json:"failed,omitempty"`
	Reason string `json:"reason,omitempty"`
	Up     Bytes  `json:"up_bytes,omitempty"`
	Down   Bytes  `json:"down_bytes,omitempty"`
	Rule   string `json:"rule,omitempty"`   // that decided
	Origin string `json:"origin,omitempty"` // of the policy that decided
	Hint   string `json:"hint,omitempty"`   // of a refusal
	// Word would allow it; "" is that none does: it is denied, or a bound refuses it.
	Word string `json:"word,omitempty"`
	// After is the allowed name that most likely led here, of a refusal.
	After string    `json:"after,omitempty"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Host is the name with its port, if that is known.
func (n *NetworkName) Host() string {
	if n.Port == 0 {
		return n.Name
	}
	return n.Name + ":" + strconv.Itoa(int(n.Port))
}

// NetworkLimit is a limit of the judge that was met.
type NetworkLimit struct {
	What  string `json:"what"`
	Count int    `json:"count"`
}

// NetworkAddition is a file of network-allow: the user has added words to what a job, or an
// environment, may reach.
type NetworkAddition struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Time    time.Time `json:"time"`
	By      string    `json:"by"`
	Host    string    `json:"host,omitempty"` // where
	Words   []string  `json:"words"`
}

// MostAllowWords bounds the words of one such act, and MostAllows the acts.
const (
	MostAllowWords = 64
	MostAllows     = 100
)
