package wire

import (
	"fmt"
	"io"
	"time"

	"berth/jobs"
)

// Operations of the keeper of a warm environment, see [KeepRequest].
const (
	KeepStatus  = "status"   // answer: KeepState
	KeepStop    = "stop"     // end the environment, keep its files; no answer but the end
	KeepKeys    = "keys"     // hand over the keys of its credentials; the answer is empty
	KeepBGStart = "bg.start" // answer: BG
	KeepBGList  = "bg.list"  // answer: []BG
	KeepBGLog   = "bg.log"   // the log comes as [Stdout]; answer: BG
	KeepBGWait  = "bg.wait"  // answer when it has ended: BG
	KeepBGWrite = "bg.write" // [Stdin] goes to its standard input; answer: BG
	KeepBGKill  = "bg.kill"  // the whole tree; answer: BG
)

// KeepRequest is an operation of the keeper.
type KeepRequest struct {
	Op    string        `json:"op"`
	ID    string        `json:"id,omitempty"`    // of the background process
	Start *StartMessage `json:"start,omitempty"` // bg.start: the command
	// Offset is where in the log to begin; negative counts from its end.
	Offset int64 `json:"offset,omitempty"`
	// Follow goes on with the log until the process has ended.
	Follow bool `json:"follow,omitempty"`
	// Close ends the standard input after what was written.
	Close bool `json:"close,omitempty"`
	// Signal and Grace are of bg.kill: TERM and KILL after Grace, unless a
	// signal is named, which is sent and nothing else.
	Signal int           `json:"signal,omitempty"`
	Grace  time.Duration `json:"grace_ns,omitempty"`
	// Keys is of keys: NAME=VALUE, each with a NUL behind it, as a keeper that is started
	// on the client's machine reads them.
	Keys Secret `json:"keys,omitempty"`
}

// Secret is what is sent and never shown.
type Secret []byte

// Format shows nothing of it, however it is printed.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "secret") }

// KeepAnswer is what the keeper answers. Its errors keep their kind and hint.
type KeepAnswer struct {
	Error string     `json:"error,omitempty"`
	Kind  jobs.Kind  `json:"kind,omitempty"`
	Hint  string     `json:"hint,omitempty"`
	BG    []BG       `json:"bg,omitempty"`
	State *KeepState `json:"state,omitempty"`
}

// BG is a background process.
type BG = jobs.Background

// KeepState is what a keeper says of its environment.
type KeepState struct {
	Host     string        `json:"host"`
	PID      int           `json:"pid"`
	Opened   time.Time     `json:"opened"`
	Guest    GuestHello    `json:"guest"`
	Running  int           `json:"running"`  // commands
	BG       int           `json:"bg"`       // background processes
	Sessions []string      `json:"sessions"` // with a shell
	Idle     time.Duration `json:"idle_ns"`  // since the last of anything ended; 0 while something runs
	Lifetime time.Duration `json:"lifetime_ns"`
	MaxRSS   jobs.Bytes    `json:"memory_bytes,omitempty"` // used now
	Notes    []string      `json:"notes,omitempty"`
	// NoRelay is since when connections wait for a relay, see wayout; zero is that there is
	// one, or that none is needed.
	NoRelay time.Time `json:"no_relay_since,omitzero"`
	// Usage is what models were asked for, since it was stopped last; nil is nothing.
	Usage *jobs.Usage `json:"usage,omitempty"`
}
