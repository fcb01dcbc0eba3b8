package judge

import "time"

// Decisions in entries.
const (
	Allowed = "allow"
	Denied  = "deny"
)

// An Entry is a line of network.jsonl. There is nothing in it of what was said on
// the connection. Names in it are normalised: letters, digits, hyphens, dots.
type Entry struct {
	Time     time.Time `json:"time"` // of the beginning, UTC
	Phase    string    `json:"phase,omitempty"`
	Name     string    `json:"name,omitempty"` // "" is an address that was asked for as such
	Addr     string    `json:"addr,omitempty"` // that was dialled, or refused
	Port     uint16    `json:"port,omitempty"` // 0 is a question for a name
	Decision string    `json:"decision"`
	Rule     string    `json:"rule,omitempty"`    // that decided
	Origin   string    `json:"origin,omitempty"`  // of the policy that decided
	Opaque   bool      `json:"opaque,omitempty"`  // nothing in the bytes says that this is the name's server
	ByName   bool      `json:"by_name,omitempty"` // what has dialled has resolved the name, too: its address was not judged
	Up       int64     `json:"up,omitempty"`      // bytes from the program
	Down     int64     `json:"down,omitempty"`    // bytes to the program
	Seconds  float64   `json:"seconds,omitempty"`
	Reason   string    `json:"reason,omitempty"` // why it was not carried to its end; "limit: " begins what met a bound
	Hint     string    `json:"hint,omitempty"`   // of a refusal
	Word     string    `json:"word,omitempty"`   // the rule that would allow it, of a refusal
	After    string    `json:"after,omitempty"`  // the allowed name that most likely led here, of a refusal
}
