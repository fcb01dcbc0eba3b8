package protocol

import (
	"encoding/json"
	"fmt"
	"time"
)

// Line is one line of a program's standard output: exactly one of the three.
type Line struct {
	Progress *string         `json:"progress,omitempty"` // for people; a sign of life
	OK       json.RawMessage `json:"ok,omitempty"`       // an object; nothing comes after it
	Error    *Error          `json:"error,omitempty"`    // likewise
}

// Error is a refusal or a failure.
type Error struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"` // lower case, names the thing, no period
	Hint    string `json:"hint,omitempty"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Errorf makes an Error without a hint.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Kind says what sort of trouble an Error is.
type Kind string

// The kinds. Any other is [Internal].
const (
	Auth        Kind = "auth"        // no key, a wrong one, or one without the right
	Quota       Kind = "quota"       // the account's bounds are reached
	Rate        Kind = "rate"        // too many requests, also after waiting
	NotFound    Kind = "not_found"   // an image, a region that was named does not exist
	Conflict    Kind = "conflict"    // the name is taken by something that is not ours
	Gone        Kind = "gone"        // the sandbox has ended
	Changed     Kind = "changed"     // the sandbox stands, with other values than those wanted
	Unsupported Kind = "unsupported" // the service has no such thing
	Input       Kind = "input"       // a value that the service does not take
	Unreachable Kind = "unreachable" // the service does not answer
	Unclear     Kind = "unclear"     // it may have been done; the result is unknown
	Internal    Kind = "internal"    // anything else
)

// Levels of containment that a program may claim.
const (
	LevelNone   = "none"   // none: this user's own rights
	LevelFS     = "fs"     // a container with a file system of its own
	LevelEgress = "egress" // and no network but what is allowed
	LevelVM     = "vm"     // a machine of its own, or a kernel of its own in between
)

// Limits and ways of Capabilities.
const (
	LimitCPUs   = "cpus"
	LimitMemory = "memory"
	LimitDisk   = "disk"
)

// Checked answers check.
type Checked struct {
	Version string `json:"version"`           // of the program
	Service string `json:"service,omitempty"` // what it reaches, for people: "Modal, workspace ada"
	Region  string `json:"region,omitempty"`
	Level   string `json:"level"` // what its sandboxes are contained by
	Capabilities
	// Options are the names in Request.Options that it knows; berth refuses others.
	Options []string   `json:"options,omitempty"`
	Quotas  []Quantity `json:"quotas,omitempty"`
	Notes   []string   `json:"notes,omitempty"`
}

// Capabilities are what a service can do. What it cannot is refused before
// anything is made.
type Capabilities struct {
	Limits     []string `json:"limits,omitempty"`     // that it holds: "cpus", "memory", "disk"
	Network    []string `json:"network,omitempty"`    // "open", "none", "allow"
	GPU        []string `json:"gpu,omitempty"`        // "nvidia", "amd"
	Image      bool     `json:"image,omitempty"`      // takes an image by its name
	Persistent bool     `json:"persistent,omitempty"` // files outlive a stop
	Snapshots  bool     `json:"snapshots,omitempty"`  // snapshot, restore and Spec.From
	Exec       bool     `json:"exec,omitempty"`
	// Stream is false where there is none; nil is that there is one.
	Stream *bool `json:"stream,omitempty"`
	// MaxLifetimeSeconds is the longest life of a sandbox; 0 is no bound.
	MaxLifetimeSeconds int64 `json:"max_lifetime_seconds,omitempty"`
}

// Quantity is how much of something an account uses and may use.
type Quantity struct {
	Name  string  `json:"name"` // "vCPU", "sandboxes"
	Used  float64 `json:"used"`
	Limit float64 `json:"limit,omitempty"` // 0 is not known
}

// How open came to the sandbox.
const (
	StateMade     = "made"     // new, from the image
	StateFound    = "found"    // it was there, with its files
	StateRestored = "restored" // its files were: from a snapshot, or it was stopped
	StateRebuilt  = "rebuilt"  // new, because the one that was there was lost with its files
)

// Opened answers open.
type Opened struct {
	Ref   string `json:"ref"` // what the service calls it
	State string `json:"state"`
	Why   string `json:"why,omitempty"`   // it was rebuilt
	Guest string `json:"guest"`           // absolute path of the guest program inside
	Arch  string `json:"arch"`            // inside, as Go calls it
	Home  string `json:"home,omitempty"`  // wanted as HOME inside; "" is its user's own
	Level string `json:"level,omitempty"` // when it differs from that of check
	// Dropped names limits of Spec.Soft that are not held.
	Dropped []string  `json:"dropped,omitempty"`
	Ends    time.Time `json:"ends,omitzero"` // when the service ends it, whatever happens
	Cost    *Cost     `json:"cost,omitempty"`
	Notes   []string  `json:"notes,omitempty"`
}

// Cost is what a sandbox costs while it runs, by the service's list prices.
type Cost struct {
	PerHour  float64 `json:"per_hour"`
	Currency string  `json:"currency"` // "USD"
	// StoppedPerHour is what its files cost while it is stopped.
	StoppedPerHour float64 `json:"stopped_per_hour,omitempty"`
	AsOf           string  `json:"as_of,omitempty"` // the day of the prices: "2026-08-01"
}

// Found is a sandbox, or what is kept of a stopped one.
type Found struct {
	Ref     string            `json:"ref"`
	Name    string            `json:"name"`
	Tags    map[string]string `json:"tags"`
	Running bool              `json:"running"`
	Created time.Time         `json:"created,omitzero"`
}

// Listed answers list.
type Listed struct {
	Found     []Found    `json:"found"`
	Snapshots []Snapshot `json:"snapshots,omitempty"`
}

// Snapshot is a copy of a sandbox's files that is kept under a name.
type Snapshot struct {
	Name    string            `json:"name"`           // as in Request.Snapshot
	ID      string            `json:"id"`             // what the service calls it
	Tags    map[string]string `json:"tags,omitempty"` // none where the service has none for it
	Created time.Time         `json:"created,omitzero"`
	Bytes   int64             `json:"bytes,omitempty"` // 0 is not known
}

// Snapshotted answers snapshot.
type Snapshotted struct {
	Snapshot Snapshot `json:"snapshot"`
}

// Restored answers restore.
type Restored struct {
	Ref   string   `json:"ref"` // of the sandbox that has been made
	Notes []string `json:"notes,omitempty"`
}

// ExecLine is one line of an exec after its ok: exactly one of the three.
type ExecLine struct {
	Stdout []byte `json:"stdout,omitempty"` // base64
	Stderr []byte `json:"stderr,omitempty"` // likewise
	Exit   *Exit  `json:"exit,omitempty"`   // nothing comes after it
}

// Exit is how a command has ended.
type Exit struct {
	Code   int `json:"code"`             // 0 to 255
	Signal int `json:"signal,omitempty"` // that has ended it; 0 is none
}
