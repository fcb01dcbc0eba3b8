package jobs

import (
	"fmt"
	"time"
)

// Exit is how a command ended. That it could not be found out is an error, and
// not an Exit.
type Exit struct {
	Started bool   `json:"started"`          // the command's first instruction was reached
	Code    int    `json:"code"`             // exit code; 128+Signal for a signal; 126, 127 when not started
	Signal  int    `json:"signal,omitempty"` // the signal that ended it, or 0
	OOM     bool   `json:"oom,omitempty"`    // the kernel killed it for memory
	Error   string `json:"error,omitempty"`  // why it did not start
}

// OK tells whether the command ran and exited 0.
func (e Exit) OK() bool { return e.Started && e.Code == 0 && e.Signal == 0 }

// String says it in a few words.
func (e Exit) String() string {
	switch {
	case !e.Started && e.Error == "":
		return "did not start"
	case !e.Started:
		return "did not start: " + e.Error
	case e.OOM:
		return "killed: out of memory"
	case e.Signal != 0:
		return fmt.Sprintf("killed by signal %d", e.Signal)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// ExitRecord is exit.json: the runner's last word on an attempt, written once.
type ExitRecord struct {
	Version  int       `json:"version"`
	Attempt  string    `json:"attempt"`
	State    State     `json:"state"`
	Class    Class     `json:"class,omitempty"` // "" follows from the state
	Exit     Exit      `json:"exit"`
	Code     int       `json:"code"` // what `berth wait` exits with
	Reason   string    `json:"reason,omitempty"`
	Hint     string    `json:"hint,omitempty"`
	Started  time.Time `json:"started,omitzero"` // of the command
	Ended    time.Time `json:"ended"`
	Node     string    `json:"node,omitempty"`
	Image    *ImageUse `json:"image,omitempty"` // nil where no image was run, or none was reached
	OOMKills int       `json:"oom_kills,omitempty"`
	MaxRSS   Bytes     `json:"max_rss_bytes,omitempty"` // of the largest process
	// Peak is the most memory that the job's cgroup held on the runner's node, page
	// cache included; 0 where nobody counts.
	Peak      Bytes        `json:"memory_peak_bytes,omitempty"`
	Result    *Result      `json:"result,omitempty"`
	Done      []DoneResult `json:"done,omitempty"`
	Artifacts []string     `json:"artifacts,omitempty"`
	Overlay   *OverlayUse  `json:"overlay,omitempty"`
	Notes     []string     `json:"notes,omitempty"` // limits dropped, programs chosen
}

// How an attempt worked on its writable layer.
const (
	WaySnapshot  = "snapshot"  // on a copy, which took the overlay's place or is gone
	WayInPlace   = "in place"  // in the overlay itself
	WayTemporary = "temporary" // on a layer that is thrown away
)

// OverlayUse is what an attempt did with its writable layer.
type OverlayUse struct {
	Name   string `json:"name,omitempty"` // "" is a throw-away one
	Driver string `json:"driver"`
	Way    string `json:"way"`           // [WaySnapshot] and the others
	Why    string `json:"why,omitempty"` // this way
	// Promoted says that the copy the attempt worked on is the overlay now.
	Promoted bool `json:"promoted,omitempty"`
}

// ImageUse is where an image was run from, and why from there.
type ImageUse struct {
	Way  string `json:"way"`  // [ImageInPlace], [ImageStaged] or [ImageUnpacked]
	Path string `json:"path"` // of the SIF or directory, on Node
	Node string `json:"node"`
	Why  string `json:"why"`
	// Failed is why there is no copy though one was wanted.
	Failed string `json:"failed,omitempty"`
	Reused bool   `json:"reused,omitempty"` // the copy was there already
}

// Where an image is run from.
const (
	ImageInPlace  = "in place" // where the job's record names it
	ImageStaged   = "staged"   // from a copy of the file on the node's own disk
	ImageUnpacked = "unpacked" // from a directory on the node's own disk
)

// String says it in one line.
func (u ImageUse) String() string {
	s := u.Way + " (" + u.Why + "): " + u.Path
	if u.Reused {
		s += ", which was there already"
	}
	if u.Failed != "" {
		s += "; it was not staged: " + u.Failed
	}
	return s
}

// Result is what changed in the workspace.
type Result struct {
	Branch     string   `json:"branch,omitempty"`
	Base       string   `json:"base"`
	Commit     string   `json:"commit,omitempty"` // "" when nothing changed
	Tree       string   `json:"tree,omitempty"`
	Files      int      `json:"files"`
	Insertions int      `json:"insertions"`
	Deletions  int      `json:"deletions"`
	OutOfScope []string `json:"out_of_scope,omitempty"`
	Skipped    int      `json:"skipped,omitempty"` // paths that git cannot hold; the manifest lists them
	Taken      bool     `json:"taken"`             // the branch stands in the user's repository
	TakeError  string   `json:"take_error,omitempty"`
}

// DoneResult is one of the task's done commands and how it ended.
type DoneResult struct {
	Command Command `json:"command"`
	Exit    Exit    `json:"exit"`
}
