package jobs

import "time"

// Background is a background process and its record.
type Background struct {
	ID      string    `json:"id"` // "bg-1", unique in its environment
	Command Command   `json:"command"`
	Session string    `json:"session,omitempty"`
	PID     int       `json:"pid,omitempty"` // inside
	Running bool      `json:"running"`
	Exit    *Exit     `json:"exit,omitempty"` // nil while it runs, and when it is lost
	Lost    string    `json:"lost,omitempty"` // why it is not known how it ended
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Log     int64     `json:"log_bytes"`
	Cut     bool      `json:"log_cut,omitempty"` // the log has reached its limit
}

// TerminalSize is a terminal's, in characters.
type TerminalSize struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

// Allocation is what is known of an environment's allocation.
type Allocation struct {
	ID    string `json:"id"`    // the scheduler's
	State string `json:"state"` // the scheduler's word
	// Running is that it has begun.
	Running bool `json:"running"`
	// Open is that its keeper has opened the environment, as far as is recorded.
	Open   bool      `json:"open,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Node   string    `json:"node,omitempty"`
	Start  time.Time `json:"start,omitzero"` // real, or expected
	Ends   time.Time `json:"ends,omitzero"`
}
