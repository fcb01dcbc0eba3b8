package staging

import (
	"fmt"
	"time"

	"berth/jobs"
)

// Form is what a copy is.
type Form string

// The forms of a copy.
const (
	SIF      Form = "sif"      // the file
	Unpacked Form = "unpacked" // a directory
)

// Case is what is known of an image and of what is about to run from it.
type Case struct {
	Setting string // [jobs.StageAuto], [jobs.StageAlways] or [jobs.StageNever]; "" is auto
	Driver  string // of the overlay
	// Dir says that the image is an unpacked one of the user's.
	Dir         bool
	Local       bool          // it is on a disk of this node
	Size        int64         // bytes
	There       bool          // a copy is there already
	Tasks       int           // of the job; 0 and 1 are one
	Environment bool          // it is not a job
	Others      int           // tasks on this node that run from it where it is
	Lasting     bool          // later jobs find a copy
	Memory      bool          // a copy would be in memory
	Time        time.Duration // limit of the job; 0 is not known
}

// Open tells whether it depends on what is on the node: copies, and other tasks.
func (c Case) Open() bool {
	return !c.Dir && !c.Local && c.Setting != jobs.StageNever && c.Setting != jobs.StageAlways && c.Driver != jobs.DriverKernel
}

// What a job must be at most for its image not to be worth a copy.
const (
	SmallImage = 32 << 20         // bytes
	ShortJob   = 10 * time.Minute // its time limit
)

// Decide says in which form a copy pays for itself, or "" for none, and why.
func (c Case) Decide() (form Form, why string) {
	switch {
	case c.Dir:
		return "", "it is an unpacked image already"
	case c.Setting == jobs.StageNever:
		return "", `stage = "never"`
	case c.Driver == jobs.DriverKernel:
		return Unpacked, "the overlay driver kernel takes an unpacked image"
	case c.Setting == jobs.StageAlways:
		return SIF, `stage = "always"`
	case c.Local:
		return "", "it is on a disk of this node"
	case c.There:
		return SIF, "a copy was on this node already"
	case c.Memory:
		return "", "a copy on this node would take memory: its scratch directory is no disk"
	case c.Tasks > 1:
		return SIF, fmt.Sprintf("the job has %d tasks", c.Tasks)
	case !c.Lasting:
		return "", "a copy on this node would be gone with the job"
	case c.Environment:
		return SIF, "an environment runs many commands"
	case c.Others > 0:
		return SIF, fmt.Sprintf("tasks on this node run from it (%d)", c.Others)
	case c.Size < SmallImage:
		return "", fmt.Sprintf("it is small (%s) and read once", mib(c.Size))
	case c.Time > 0 && c.Time <= ShortJob:
		return "", fmt.Sprintf("the job is short (%s) and reads it once", c.Time)
	}
	return SIF, "it is on another machine's disk and the job may run for long"
}

func mib(n int64) jobs.Bytes { return jobs.Bytes((n + 1<<20 - 1) &^ (1<<20 - 1)) }
