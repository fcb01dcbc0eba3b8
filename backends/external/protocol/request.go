// Package protocol has the words that berth and a program berth-backend-NAME
// say to each other. docs/backend-protocol.md is their meaning, for whoever
// writes such a program; package provider is the program's side in Go.
package protocol

import "time"

// Version is the version of the protocol. A program that does not know the one
// of a request answers [Unsupported].
const Version = 1

// The verbs: the program's first argument, and Request.Verb.
const (
	VerbCheck   = "check"
	VerbOpen    = "open"
	VerbStream  = "stream"
	VerbList    = "list"
	VerbStop    = "stop"
	VerbDestroy = "destroy"
	// Of programs whose check says that they have them.
	VerbSnapshot = "snapshot"
	VerbRestore  = "restore"
	VerbExec     = "exec"
)

// Verbs returns all of them.
func Verbs() []string {
	return []string{VerbCheck, VerbOpen, VerbStream, VerbList, VerbStop, VerbDestroy, VerbSnapshot, VerbRestore, VerbExec}
}

// Bounds of what a program may say.
const (
	MaxLine    = 1 << 20 // bytes of a line with its end
	MaxText    = 2000    // bytes of a message, a hint, a note
	MaxWord    = 256     // bytes of a ref, a name, a tag
	MaxEntries = 10000   // things in the answer of list

	MaxProgress = 10000 // lines of progress in an answer
)

// Times that a program has. An answer counts from the start, silence from the
// last line.
const (
	CheckTime   = 30 * time.Second
	ListTime    = 2 * time.Minute
	DestroyTime = 2 * time.Minute
	StopTime    = 10 * time.Minute
	OpenTime    = 30 * time.Minute
	StreamTime  = 2 * time.Minute // until its guest speaks
	ExecTime    = time.Minute     // until its ok
	// SnapshotTime is that of a snapshot; restore has as long as open.
	SnapshotTime = 10 * time.Minute
	SilentTime   = 2 * time.Minute
	LeaveTime    = 5 * time.Second // from TERM to KILL
)

// Tags by which a sandbox is known to be berth's, and whose. Their values are
// letters, digits, dots, dashes and underscores, at most 63.
const (
	TagVersion = "berth"       // "1"
	TagOwner   = "berth-owner" // names one state directory, and says nothing about it
	TagEnv     = "berth-env"   // the id of the environment, or of the attempt of a job
	TagName    = "berth-name"  // the environment's name, for people
	TagUser    = "berth-user"  // the user's name, for people
	TagJob     = "berth-job"   // the id of the job; only of an attempt
)

// Request is what berth wants, the file that is the program's second argument.
// It holds no secret.
type Request struct {
	Berth   int    `json:"berth"` // [Version]
	Verb    string `json:"verb"`
	Backend string `json:"backend"` // NAME
	// Name is what the sandbox is called at the service: lower-case letters,
	// digits and dashes, at most 60, no other sandbox of berth's has it.
	Name string `json:"name,omitempty"` // not in check, list
	// Ref is what the last open has called the sandbox; "" when none has.
	Ref string `json:"ref,omitempty"` // open, stream, stop, destroy
	// Tags are put on what open makes, and prove what stop and destroy may
	// touch. Of list they are those that what it finds must have.
	Tags    map[string]string `json:"tags,omitempty"`
	Options map[string]string `json:"options,omitempty"` // of the configuration, as they stand there
	Spec    *Spec             `json:"spec,omitempty"`    // open, restore
	Guest   *Guest            `json:"guest,omitempty"`   // open; nil where there is no stream
	Argv    []string          `json:"argv,omitempty"`    // stream, exec: what to run inside
	// Snapshot is what a snapshot is called at the service: letters, digits and
	// dashes, at most 60; no other snapshot of berth's has it. Of list it is what
	// the names of this user's begin with. With it, destroy removes the snapshot
	// and nothing else.
	Snapshot string `json:"snapshot,omitempty"` // snapshot, restore, list, destroy
}

// Spec is the sandbox that is wanted. A number that is 0 and a word that is ""
// say nothing: the service's own value counts.
type Spec struct {
	Image     string  `json:"image,omitempty"` // as for docker: "debian:12"
	CPUs      int     `json:"cpus,omitempty"`  // virtual CPUs, as docker counts them
	MemoryMiB int64   `json:"memory_mib,omitempty"`
	DiskMiB   int64   `json:"disk_mib,omitempty"`
	GPU       string  `json:"gpu,omitempty"` // "nvidia", "amd"
	Network   Network `json:"network"`
	// Persistent says that its files are to be there after a stop.
	Persistent bool `json:"persistent"`
	// LifetimeSeconds bounds the sandbox's time from now on, whatever berth
	// does; it is never 0. A service that allows less takes its most.
	LifetimeSeconds int64 `json:"lifetime_seconds"`
	// WholeLifetime says that files which outlive a stop end with that time, too.
	WholeLifetime bool `json:"whole_lifetime,omitempty"`
	// IdleSeconds is after how long without a stream the service may stop it.
	IdleSeconds int64 `json:"idle_seconds,omitempty"`
	// Soft names limits that are defaults and were not asked for: "cpus",
	// "memory", "disk". One that cannot be held is dropped, and named in
	// [Opened].Dropped; any other is [Unsupported].
	Soft []string `json:"soft,omitempty"`
	// From is the snapshot whose files a sandbox begins with that is made; it is
	// called as in Request.Snapshot.
	From string `json:"from,omitempty"`
}

// Ways of Network.Mode.
const (
	NetworkOpen  = "open"
	NetworkNone  = "none"
	NetworkAllow = "allow"
)

// Network is what can be reached from inside.
type Network struct {
	Mode  string   `json:"mode"`
	Allow []string `json:"allow,omitempty"` // of NetworkAllow: names ("*.example.com") and CIDRs
}

// Guest is the program that berth needs inside: a static one of about 3 MiB.
type Guest struct {
	Path   string `json:"path"`   // on this machine
	SHA256 string `json:"sha256"` // in hex
	Arch   string `json:"arch"`   // as Go calls it: "amd64", "arm64"
}
