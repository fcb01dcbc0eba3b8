package jobs

import (
	"fmt"
	"slices"
	"strings"
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
	Blame    Blame     `json:"blame,omitempty"` // of what is the site's: whose doing it is; "" is not known
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
	// Peak is the peak memory of the job's cgroup on the runner's node, page cache
	// included; 0 where it is not measured.
	Peak      Bytes        `json:"memory_peak_bytes,omitempty"`
	Result    *Result      `json:"result,omitempty"`
	Done      []DoneResult `json:"done,omitempty"`
	Artifacts []string     `json:"artifacts,omitempty"`
	// ArtifactFiles is the number of artifacts. Artifacts lists only the first of
	// them, because the size of a record is bounded. ArtifactBytes is their total size.
	ArtifactFiles int   `json:"artifact_files,omitempty"`
	ArtifactBytes Bytes `json:"artifact_bytes,omitempty"`
	// LeftOut is what of the artifacts and the changes did not come back.
	LeftOut []Omission `json:"left_out,omitempty"`
	// Kept is the task's work tree, where that was kept; nil is not.
	Kept    *KeptTree   `json:"kept,omitempty"`
	Overlay *OverlayUse `json:"overlay,omitempty"`
	// NetworkUse is what it did with a network that is judged; nil is that there was no judge.
	NetworkUse *NetworkUse `json:"network_use,omitempty"`
	Usage      *Usage      `json:"usage,omitempty"` // of models; nil where the broker had no request
	Agent      *AgentUse   `json:"agent,omitempty"` // nil where its events were not read
	// Left is what the command had left running when it ended by itself, by the guest; nil is
	// not known. All of it is ended with the container.
	Left *LeftRunning `json:"left_running,omitempty"`
	// Destroyed is what was found after the place had been destroyed; nil is that berth did
	// not look, see [Fate.Looks].
	Destroyed *Destroyed `json:"destroyed,omitempty"`
	// KeptPlace is as what the place was kept, as [OverlaySpec.Keep] asks; nil is that it was not.
	KeptPlace *KeptPlace `json:"kept_place,omitempty"`
	Notes     []string   `json:"notes,omitempty"` // limits dropped, programs chosen
}

// KeptPlace names what a place is kept as: one of the two.
type KeptPlace struct {
	Overlay     string `json:"overlay,omitempty"`     // its layer, among the overlays
	Environment string `json:"environment,omitempty"` // its files, as those of this environment
}

// Named is what it is kept as, in a few words.
func (k *KeptPlace) Named() string {
	if k.Overlay != "" {
		return "the overlay " + k.Overlay
	}
	return "the environment " + k.Environment
}

// String says what it is and which command opens it.
func (k *KeptPlace) String() string {
	if k.Overlay != "" {
		return fmt.Sprintf("the layer is kept as overlay %s: berth overlay fork %s NAME makes one with a name of it", k.Overlay, k.Overlay)
	}
	return fmt.Sprintf("the place is kept as environment %s, without a network: berth shell --env %s opens it, berth env rm %s removes it",
		k.Environment, k.Environment, k.Environment)
}

// LeftRunning are processes that a command has left running.
type LeftRunning struct {
	// Names are what the kernel calls the first of them, printable; the task chooses that.
	Names []string `json:"names,omitempty"`
	Count int      `json:"count"`
}

// MostLeft bounds the names of [LeftRunning].
const MostLeft = 20

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
	Workspace  string   `json:"workspace,omitempty"` // the name of a further one
	Branch     string   `json:"branch,omitempty"`
	Base       string   `json:"base"`
	Commit     string   `json:"commit,omitempty"` // "" when nothing changed
	Tree       string   `json:"tree,omitempty"`
	Files      int      `json:"files"`
	Insertions int      `json:"insertions"`
	Deletions  int      `json:"deletions"`
	OutOfScope []string `json:"out_of_scope,omitempty"`
	// LookAt is what to look at before the branch is used: files that programs obey,
	// links that lead out of it, new executables.
	LookAt    []string `json:"look_at,omitempty"`
	Skipped   int      `json:"skipped,omitempty"` // paths that git cannot hold; the manifest lists them
	Taken     bool     `json:"taken"`             // the branch stands in the user's repository
	TakeError string   `json:"take_error,omitempty"`
	// Apart counts new files that came back as artifacts and not on the branch.
	Apart int `json:"apart,omitempty"`
	// Further is the same of each further workspace, in the order of the job's.
	Further []Result `json:"further,omitempty"`
}

// All are the results of all workspaces of the job, this one first.
func (r *Result) All() []*Result {
	all := []*Result{r}
	for i := range r.Further {
		all = append(all, &r.Further[i])
	}
	return all
}

// Changed reports whether something changed in any workspace.
func (r *Result) Changed() bool {
	return slices.ContainsFunc(r.All(), func(w *Result) bool { return w.Commit != "" })
}

// Empty reports whether nothing came back: no commit, and no file beside one.
func (r *Result) Empty() bool {
	return !slices.ContainsFunc(r.All(), func(w *Result) bool { return w.Commit != "" || w.Apart > 0 })
}

// Outside are the paths that the scopes do not cover; those of a further workspace begin
// with its name.
func (r *Result) Outside() []string {
	return r.named(func(w *Result) []string { return w.OutOfScope })
}

// Suspicious are what to look at in all workspaces, as LookAt has it.
func (r *Result) Suspicious() []string {
	return r.named(func(w *Result) []string { return w.LookAt })
}

func (r *Result) named(of func(*Result) []string) (out []string) {
	for _, w := range r.All() {
		for _, text := range of(w) {
			if w.Workspace != "" {
				text = w.Workspace + ": " + text
			}
			out = append(out, text)
		}
	}
	return out
}

// What an [Omission] is left out of.
const (
	OfArtifacts = "artifacts"
	OfBranch    = "branch"
)

// Omission is what was left out of a result for one reason.
type Omission struct {
	Of string `json:"of"` // [OfArtifacts] or [OfBranch]
	// Workspace is of the branch of a further workspace, its name; "" is the first one.
	Workspace string `json:"workspace,omitempty"`
	Kind      string `json:"kind"` // of the reason: package workspace names them
	Why       string `json:"why"`  // the reason, in words that go on after "3 files "
	Paths     int    `json:"paths"`
	Bytes     Bytes  `json:"size_bytes,omitempty"` // as far as that could be seen
	// Names are the first of the paths, printable.
	Names []string `json:"names,omitempty"`
	// Told says that nothing is lost: it had no content that could be brought.
	Told bool `json:"told,omitempty"`
}

// From says of what it was left out: "branch", or "branch of workspace lib".
func (o Omission) From() string {
	if o.Workspace == "" {
		return o.Of
	}
	return o.Of + " of workspace " + o.Workspace
}

// String says it in one line.
func (o Omission) String() string {
	s := fmt.Sprintf("%s: %d paths %s", o.From(), o.Paths, o.Why)
	if o.Paths == 1 {
		s = fmt.Sprintf("%s: 1 path %s", o.From(), o.Why)
	}
	if o.Bytes > 0 {
		s += " (" + o.Bytes.Rough() + ")"
	}
	if len(o.Names) > 0 {
		s += ": " + strings.Join(o.Names, ", ")
		if n := o.Paths - len(o.Names); n > 0 {
			s += fmt.Sprintf(" and %d more", n)
		}
	}
	return s
}

// KeptTree is a task's work tree that was kept because part of the result could
// not be returned. The task wrote its content, which is therefore untrusted.
type KeptTree struct {
	// Dir is its name in the attempt's directory, on the machine where the
	// attempt ran; "" is that nothing was kept.
	Dir string `json:"dir,omitempty"`
	// Files and Bytes could not be kept, because of Error.
	Files int    `json:"lost_files,omitempty"`
	Bytes Bytes  `json:"lost_bytes,omitempty"`
	Error string `json:"error,omitempty"`
}

// Lost says how much could not be kept.
func (k *KeptTree) Lost() string {
	paths := fmt.Sprintf("%d paths", k.Files)
	switch k.Files {
	case 0:
		return "the task's files"
	case 1:
		paths = "1 path"
	}
	if k.Bytes > 0 {
		paths += " of " + k.Bytes.Rough()
	}
	return paths
}

// Partial tells whether something that was asked for did not come back.
func (x *ExitRecord) Partial() bool {
	for _, o := range x.LeftOut {
		if !o.Told {
			return true
		}
	}
	return false
}

// DoneResult is one of the task's done commands and how it ended.
type DoneResult struct {
	Command Command `json:"command"`
	Exit    Exit    `json:"exit"`
}
