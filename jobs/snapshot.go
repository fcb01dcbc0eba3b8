package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Snapshot is a copy of an environment's files that is kept under a name.
type Snapshot struct {
	Name        string    `json:"name"`
	Backend     string    `json:"backend"`
	Environment string    `json:"environment"`    // that it is of; it may be gone
	EnvID       string    `json:"environment_id"` // of that
	ID          string    `json:"id,omitempty"`   // what the service calls it
	Created     time.Time `json:"created"`
	Bytes       int64     `json:"bytes,omitempty"` // 0 is not known
	// Unclear says that it was begun, and that it is unknown whether it exists.
	Unclear bool `json:"unclear,omitempty"`
}

// WhatSnapshot is [Found].What of a snapshot.
const WhatSnapshot = "snapshot"

// WhatImage is [Found].What of an image from which an environment begins.
const WhatImage = "image"

// SnapshotPlace is where a [Snapshotter] finds an environment, and what it may
// ask for.
type SnapshotPlace struct {
	Dir      string       // the environment's own directory
	On       Starter      // starts programs here
	Progress func(string) // tells a person what takes long; never nil
	// Open has the environment run. Hold keeps it from running until release is
	// called; one that runs is an error.
	Open func(ctx context.Context) error
	Hold func() (release func(), err error)
}

// Snapshotter is a backend that can keep the files of an environment under a
// name, and bring them back.
type Snapshotter interface {
	Opener
	// Snapshot copies the files of s.
	Snapshot(ctx context.Context, s *EnvSpec, name string, at SnapshotPlace) (*Snapshot, error)
	// Restore makes the files of s those of a snapshot. They are those from
	// before, or these, whatever happens. It does not run before or after that.
	Restore(ctx context.Context, s *EnvSpec, name string, at SnapshotPlace) error
	// Snapshots are those of which there is a record in the state directory home.
	// s is the environment whose own they are to be; nil is all, where they outlive
	// their environments.
	Snapshots(home string, s *EnvSpec) ([]Snapshot, error)
	// RemoveSnapshot destroys one of those.
	RemoveSnapshot(ctx context.Context, home string, s Snapshot, on Starter) error
	// Outlive tells whether snapshots can stay when their environment is removed.
	Outlive() bool
}

// maxSnapshotName leaves room for what services need before it.
const maxSnapshotName = 32

// CheckSnapshotName refuses a word that cannot name a snapshot everywhere.
func CheckSnapshotName(name string) error {
	odd := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	if name == "" || len(name) > maxSnapshotName || strings.ContainsFunc(name, odd) || strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") {
		return &Error{Kind: KindUsage, Msg: fmt.Sprintf("%q cannot name a snapshot", name),
			Hint: fmt.Sprintf("use lower-case letters, digits and dashes, at most %d", maxSnapshotName)}
	}
	return nil
}
