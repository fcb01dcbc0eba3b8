package jobs

import "time"

// Suspicions of a [Report]: what to look at in what a task did, before its result is used.
const (
	SuspectScope      = "out-of-scope"   // a path changed that the scope does not cover
	SuspectControl    = "control-file"   // CI, editors, agents, git or a shell obey it
	SuspectLink       = "link-out"       // a symbolic link that leads out of the tree
	SuspectExecutable = "new-executable" // a file that can be run and was not before
	SuspectBase64     = "base64"         // an added line with more than 1 KiB of it
	SuspectRefused    = "refused-name"   // the network's policy does not allow it
	SuspectSetuid     = "setuid"         // a file of the container that runs as its owner or group
	SuspectLeft       = "left-running"   // a process that was still there when the command had ended
)

// Suspicions are all of them, each with the reason why it is one.
var Suspicions = []struct{ Kind, Reason string }{
	{SuspectScope, "it was not asked for: the scope of the task does not cover it"},
	{SuspectControl, "programs of whoever opens, builds or pushes the repository obey it"},
	{SuspectLink, "who follows it writes or reads outside of the repository"},
	{SuspectExecutable, "it can be run, and could not before"},
	{SuspectBase64, "code or data that a reader does not see: more than 1 KiB of base64 on one line"},
	{SuspectRefused, "the task asked for a name that it may not reach"},
	{SuspectSetuid, "it runs with the rights of its owner or group, whoever starts it"},
	{SuspectLeft, "it would have gone on after the command had ended; it was ended with the job"},
}

// ReasonOf is why a kind of suspicion is one.
func ReasonOf(kind string) string {
	for _, s := range Suspicions {
		if s.Kind == kind {
			return s.Reason
		}
	}
	return ""
}

// Suspicion is something in what a task did that is to be looked at. It is no verdict.
type Suspicion struct {
	Kind  string `json:"kind"`
	Where string `json:"where"` // a path, a name; printable
	Why   string `json:"why"`
}

// ContainerChanges are the paths of an attempt's container that differ from its image, each
// after what has become of it, as the backend that keeps the container's place has told.
type ContainerChanges struct {
	Version int      `json:"version"`
	Changes []string `json:"changes"`
	More    int      `json:"more,omitempty"` // are not among them
}

// Report is what an attempt of a job created, changed, ran and contacted, by what was
// recorded of it outside of its container. All text is printable, all lists are bounded:
// More counts what is not in them.
type Report struct {
	Version int       `json:"version"`
	Job     string    `json:"job"`
	Attempt int       `json:"attempt"`
	State   State     `json:"state"`
	AsOf    time.Time `json:"as_of"`
	// Ran is the command, and what the agent says that it ran.
	Ran     []string `json:"ran"`
	Created []string `json:"created"` // on the branch
	Changed []string `json:"changed"`
	Deleted []string `json:"deleted"`
	// Artifacts are files that came back beside the branch.
	Artifacts []string `json:"artifacts"`
	// Container are the paths of the container that differ from its image, where that
	// was to be kept.
	Container []string `json:"container"`
	// LeftRunning are the names of processes that the command had left running when it
	// ended: they were ended with the job.
	LeftRunning []string       `json:"left_running"`
	Reached     []NetworkName  `json:"reached"`
	Refused     []NetworkName  `json:"refused"`
	Suspicious  []Suspicion    `json:"suspicious"`
	More        map[string]int `json:"more,omitempty"`
	// Unknown says what cannot be told, and why.
	Unknown []string `json:"unknown"`
}
