package replica

import (
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// Verb is the word of berth-node for the far side.
const Verb = "mirror"

// version is the schema of everything that the two sides say. They are of the
// same build: the far side is put there by its hash.
const version = 1

// What the far side is asked to do; the second word after [Verb].
const (
	verbSurvey    = "survey"
	verbPut       = "put"
	verbRound     = "round"
	verbArtifacts = "artifacts"
	verbImage     = "image"
	verbRemove    = "remove"
)

// Question is what is asked before a job is planned, in one round trip.
type Question struct {
	Version int    `json:"version"`
	Image   string `json:"image,omitempty"`   // absolute path; "" is not asked
	Overlay string `json:"overlay,omitempty"` // name; "" is not asked
	Copy    string `json:"copy,omitempty"`    // see [workspace.CopyKey]; "" is not asked
}

// Facts are what a job script has to know of the other machine. They change
// rarely.
type Facts struct {
	Version  int           `json:"version"`
	Home     string        `json:"home"` // its state directory, a path without links
	Node     string        `json:"node"` // the program for the nodes
	Identity jobs.Identity `json:"identity"`
	UID      int           `json:"uid"`
	GID      int           `json:"gid"`
}

// Survey is the answer to a [Question].
type Survey struct {
	Facts
	Image *ImageFound `json:"image,omitempty"`
	// Mark is that of the overlay, if it exists.
	Mark *overlay.Mark `json:"mark,omitempty"`
	// Directories tells whether overlays can be directories there.
	Directories bool     `json:"directories"`
	Tips        []string `json:"tips,omitempty"` // commits that the copy of the repository has
}

// ImageFound is how an image stands there.
type ImageFound struct {
	Missing bool   `json:"missing,omitempty"`
	Sum     string `json:"sum,omitempty"`   // the SHA-256 of a file
	Dir     string `json:"dir,omitempty"`   // what [overlay.DirID] says of a directory
	Error   *fault `json:"error,omitempty"` // why it cannot be used
}

// Err is why the image cannot be used, or nil.
func (f *ImageFound) Err() error {
	if f.Error == nil {
		return nil
	}
	return f.Error.err()
}

// fault is an error that has crossed over.
type fault struct {
	Msg  string    `json:"msg"`
	Kind jobs.Kind `json:"kind,omitempty"`
	Hint string    `json:"hint,omitempty"`
}

func faultOf(err error) *fault {
	return &fault{Msg: err.Error(), Kind: jobs.KindOf(err), Hint: jobs.HintOf(err)}
}

func (f *fault) err() error { return &jobs.Error{Kind: f.Kind, Msg: plain(f.Msg), Hint: plain(f.Hint)} }

// parcel is a job on its way there: one line of JSON, and the pack behind it.
type parcel struct {
	Version int              `json:"version"`
	Home    string           `json:"home"`
	Spec    jobs.Spec        `json:"spec"`
	Attempt jobs.AttemptInfo `json:"attempt"`
	Task    []byte           `json:"task,omitempty"`
	Prompt  []byte           `json:"prompt,omitempty"`
	Secrets []string         `json:"secrets,omitempty"`
	Script  string           `json:"script"`
	Copy    *copyParcel      `json:"copy,omitempty"`
}

type copyParcel struct {
	Key   string          `json:"key"`
	Base  string          `json:"base"`
	Parts workspace.Parts `json:"parts,omitzero"`
	Size  int64           `json:"size"` // of the pack
}

// Limits of what is sent there.
const maxParcel = 256 << 20

// roundAsk is what stands here, of each job that is asked about.
type roundAsk struct {
	Version int       `json:"version"`
	Home    string    `json:"home"`
	Budget  int64     `json:"budget"` // of the bytes of files in the answer
	Jobs    []haveJob `json:"jobs"`
	// Follow are jobs of which what they need is done first, there.
	Follow []string `json:"follow,omitempty"`
}

type haveJob struct {
	ID      string           `json:"id"`
	Attempt int              `json:"attempt"`
	Have    map[string]int64 `json:"have,omitempty"` // sizes of files here
	// Give are files that were made here and are created there, once.
	Give map[string][]byte `json:"give,omitempty"`
}

// frame is one line of an answer; Length bytes of the file follow it.
type frame struct {
	Version int    `json:"version,omitempty"`
	Job     string `json:"job,omitempty"`
	Name    string `json:"name,omitempty"`
	Offset  int64  `json:"offset,omitempty"`
	Length  int64  `json:"length,omitempty"`
	Size    int64  `json:"size,omitempty"` // of the whole file, as it stands there now

	State *jobState `json:"state,omitempty"` // the last line of a job
	End   bool      `json:"end,omitempty"`   // the last line of all
	Fault *fault    `json:"fault,omitempty"`
}

// jobState closes what is said of a job.
type jobState struct {
	Gone bool   `json:"gone,omitempty"` // there is no such record
	More bool   `json:"more,omitempty"` // the budget did not suffice
	Sign *int64 `json:"sign,omitempty"` // ms since the runner was last heard of
	// NoRelay is for how many ms its connections have been waiting for a relay; nil is that they
	// do not.
	NoRelay *int64 `json:"no_relay,omitempty"`
	Over    int64  `json:"over,omitempty"` // bytes that are not sent because they are too many
	// Next is the attempt behind this one, of which all has been sent.
	Next *nextAttempt `json:"next,omitempty"`
	// Stuck is what could not be submitted there.
	Stuck *jobs.Unfollowed `json:"stuck,omitempty"`
	// Unfollowed is why what the jobs needed could not be done.
	Unfollowed *fault `json:"unfollowed,omitempty"`
}

// nextAttempt is an attempt that has begun there.
type nextAttempt struct {
	Info   jobs.AttemptInfo `json:"info"`
	Script []byte           `json:"script"`
}

// maxScript bounds the script of an attempt in an answer; one that is longer is
// not sent.
const maxScript = 40 << 10

// kind is how a file of an attempt is copied.
type kind int

const (
	once  kind = iota // created once, small
	grows             // is written from the beginning to the end while the job runs
	final             // of the attempt whose result is the job's, whole when it has ended
)

// file is one of the files that come back. Their order is that of an answer:
// what tells of the end comes last. Left out is what only those read who decide
// or go on, which is done there alone: checkpoint.json with its bundles (the
// decision says from where the next attempt goes on, and the result holds all
// of the work), its standbys; and taken.json, which is made where
// the user's repository is, so here.
type file struct {
	name string
	kind kind
	max  int64
}

// maxLog is above what a runner lets a command write, so that its own note
// about what it threw away comes along.
const maxLog = 257 << 20

var files = []file{
	{store.FileCancel, once, store.MaxOnce},
	{store.FileSubmitted, once, store.MaxOnce},
	{store.FileClaim, once, store.MaxOnce},
	{store.FileArgv, once, store.MaxOnce},
	{store.FileReceipt, once, store.MaxOnce},
	{store.FileReaper, once, store.MaxOnce},
	{store.FileEvents, grows, 64 << 20},
	{store.FileNetwork, grows, 64 << 20},
	{store.FileStdout, grows, maxLog},
	{store.FileStderr, grows, maxLog},
	{store.FileDoneStdout, grows, maxLog},
	{store.FileDoneStderr, grows, maxLog},
	{store.FileRuntime, grows, 64 << 20},
	{jobs.SchedulerLog, grows, 64 << 20},
	{workspace.DiffFile, final, 1 << 30},
	{workspace.BundleFile, final, 16 << 30},
	{workspace.ManifestFile, final, 256 << 20},
	{store.FileVerdict, once, store.MaxOnce},
	{store.FileExit, once, store.MaxOnce},
	{store.FileDecision, once, store.MaxOnce},
}

// last are the files that tell of the end. They are believed when everything
// else is here.
var last = []string{store.FileVerdict, store.FileExit, store.FileDecision}

func fileOf(name string) (file, bool) {
	for _, f := range files {
		if f.name == name {
			return f, true
		}
	}
	return file{}, false
}

// given are the files that this side may create there, beside the words that its user has
// added to what a job may reach ([store.IsAllowName]).
var given = map[string]bool{store.FileCancel: true, store.FileSubmitted: true, store.FileVerdict: true}
