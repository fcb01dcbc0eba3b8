package jobs

import (
	"context"
	"io"
	"path"
	"time"
)

// OpenPlace is where a place is opened: the machine of its keeper, or of the
// runner of a job's attempt.
type OpenPlace struct {
	Dir      string       // of the environment or the attempt, 0700; what persists lies below it
	Guest    string       // path of berth-node here
	Scratch  string       // a fresh directory on the node's own disk, removed by the caller
	On       Starter      // starts programs here
	Progress func(string) // tells a person what takes long; never nil
	// Meter tells how many bytes of something long are done, often; of is 0 where it is not
	// known, and what is "" when it is over. It may be nil.
	Meter func(what string, done, of int64)
	// Attempt is what an attempt of a job has beside an environment; nil is that
	// an environment is opened.
	Attempt *OpenAttempt
}

// OpenAttempt is what the place of an attempt has beside that of an environment.
// It is thrown away with the attempt, but for a named overlay.
type OpenAttempt struct {
	Spec *Spec
	Name string            // of the attempt in its scheduler; a container may carry it
	User string            // UID:GID that owns the mounts, where who runs inside can be chosen
	Keys []string          // NAME=VALUE for the program of the backend alone
	Note func(text string) // takes what people should know where Open fails; never nil
	// LayerDir is where the writable layer will have its files, and Layer opens it,
	// when it is known what is below it and who writes it. The layer is the caller's,
	// who also closes it.
	LayerDir string
	Layer    func(ctx context.Context, over LayerOver) (path string, err error)
}

// LayerOver is what a writable layer of an attempt is opened for.
type LayerOver struct {
	Image       *ImageUse
	Driver, Why string // as in [OverlaySpec]
}

// LineAt is what can differ between the containers of one attempt: that of the
// task, and that of its checks.
type LineAt struct {
	Guest   string // path of berth-node here
	Scratch string // a fresh directory
	Work    string // the work tree
	Layer   string // the writable layer
}

// Opening is how the guest of a place is started, once all that it needs stands
// ready.
type Opening struct {
	// Argv runs the guest over its standard input and output. That of an attempt
	// may be nil, and is then given by Line.
	Argv []string
	// Line renders Argv for one container of an attempt, right before it starts:
	// what is hidden is what stands there then. Nil is that Argv holds for all.
	Line func(at LineAt) (argv, notes []string, err error)
	Env  []string // of that program: the whole environment, made from nothing
	// OwnMounts is passed on in [Cmd]. Where it is not, one more process stays.
	OwnMounts bool
	// OwnPIDNamespace says that nothing but the guest and its commands is in
	// the guest's PID namespace.
	OwnPIDNamespace bool
	// WritableRoot says that the guest is to prove that its root directory can be
	// written, before anything else is done there.
	WritableRoot bool
	// Scripts are texts that set the environment of commands: the image's own. The
	// guest has a shell evaluate them, when it is known that the place is closed.
	Scripts []string
	Login   bool   // shells begin as login shells
	Home    string // wanted inside; "" is the place's own
	Dir     string // where sessions begin; "" is HOME
	Level   Level
	Notes   []string // choices made and limits dropped, for people
	// Rebuilt is why files of the environment were lost and created again; "" is
	// that none were.
	Rebuilt string
	// Memory is watched by the keeper, advisory, when nothing else holds it; 0
	// is not to be watched.
	Memory Bytes
	// End makes sure that nothing of it runs any more, after the program has
	// ended or could not be ended through the guest. Nil is nothing to do.
	End func(ctx context.Context) error
	// EndTime is what End may take; 0 is a minute.
	EndTime time.Duration
	// Files are what of an environment stays in its directory when it stops, by name. Of an
	// attempt: what of its scratch directory stands there, when it is kept as an environment.
	Files []string
	// Keep completes the record of the environment as which an attempt's place is kept, when
	// nothing of the attempt runs any more; nil is that Files are all of it.
	Keep func(ctx context.Context, s *EnvSpec) error
	// Remains looks, when all was ended and given back, for what of the place is there
	// beside its directories, and adds that, or that it is not; nil is nothing to look for.
	Remains func(ctx context.Context, d *Destroyed)
	// Answer reads what the program says before the guest does, and nothing
	// beyond it; its error is why there is no guest. Nil is nothing to read.
	Answer func(io.Reader) error
	// Init is the number of the place's first process, where that is not below the
	// one that runs Argv; 0 is not known. Nil is that it is below.
	Init func(ctx context.Context) int
	// RunsFirst says why a program of the image has to run before the guest, and
	// beside it; "" is that none does.
	RunsFirst string
	// Explain names the line of the site's configuration for which a place did not
	// start, by what its program said; nil is that none is known to be why. It is
	// nil where a backend has nothing to look up.
	Explain func(ctx context.Context, said string) *Error
	// Close gives back what was taken for it (a lease, a mount), last.
	Close func() error

	// What follows is known of an attempt alone.

	// Work is where the work tree stands inside; "" is where it stands outside.
	Work string
	// Far is set where the place shares no files with this machine.
	Far *Far
	// Program is the path of the container program, for the receipt.
	Program string
	// Version asks the program for its version, which is recorded under name; nil is
	// that there is nothing to ask.
	Version func(ctx context.Context) (name, version string)
	// HoldsLimits says that the backend holds the limits of memory and CPUs itself,
	// outside of the caller's cgroup.
	HoldsLimits bool
	// Unseen reports whether the program could not start the guest from where it
	// stands, by what it said; another path may do. Nil is never.
	Unseen func(said, guest string) bool
	// Trouble gives the kind and the hint of what the program said when it did not
	// start; nil is that nothing better is known.
	Trouble func(said string) (Kind, string)
	// Shares is what of the host's own files is seen inside, beside the binds.
	Shares []string
}

// Far is the place of an attempt that shares no files with this machine: a host
// behind ssh, a sandbox of a service. The work tree is copied there before a
// command and back after it, through the guest. Its Opening can be started any
// number of times.
type Far struct {
	What  string // for people, after "on": "HOST", "the sandbox REF"
	Dir   string // of this attempt there, below the home
	Until string // for people: how long what is kept is there, and who ends it; "" is for ever
	// Remove removes what the attempt has there, copied says that a work tree may be.
	Remove func(ctx context.Context, copied bool) error
	// Whole says that Remove ends the place itself, and not only Dir.
	Whole bool
}

// FarJobs is where the work trees of attempts stand in a place that shares no
// files with this machine, below the home there.
const FarJobs = ".local/state/berth/ssh/jobs"

// HomeInside is the value of HOME in a container: the path of the user's home,
// which password lookups inside return too. The directory is a new one.
func HomeInside(getenv func(string) string, user string) string {
	if h := getenv("HOME"); path.IsAbs(h) {
		return path.Clean(h)
	}
	return "/home/" + user
}

// Opener is a backend that opens places, of environments and of attempts.
type Opener interface {
	Backend
	// Open finds or makes what the place consists of. It is called by the one keeper
	// that holds the environment's lease, or by the runner of the attempt, whose
	// place is described by [Spec.Environment].
	Open(ctx context.Context, s *EnvSpec, at OpenPlace) (*Opening, error)
	// Remove destroys what Open made outside of the environment's directory.
	// It removes nothing that it cannot prove to be this environment's.
	Remove(ctx context.Context, s *EnvSpec, on Starter) error
	// List finds what stands on this machine of environments of this user made
	// by berth, whether or not there is a record of them.
	List(ctx context.Context, on Starter) ([]Found, error)
	// Reap removes one thing that List has found.
	Reap(ctx context.Context, on Starter, f Found) error
}

// Fetcher is a backend with [Capabilities.ImageNames] that can settle an image of this machine
// before a place is opened.
type Fetcher interface {
	// Fetch has an image here, pulled where it is not, and returns the name by which a place
	// gets this one and no other, whatever the image's name means later. With offline nothing
	// is pulled: an image that is not here is a [KindNotFound].
	Fetch(ctx context.Context, image string, offline bool) (pinned string, err error)
}

// Piper is a backend whose guest and clients can share named pipes: they are on
// one kernel, and a directory of the client's is seen inside. Open makes it.
type Piper interface {
	// Pipes returns that directory for the environment whose own one is dir,
	// and its path as the guest sees it.
	Pipes(dir string) (here, inside string)
}

// Found is something of an environment that stands on a machine.
type Found struct {
	Backend string    `json:"backend"`
	ID      string    `json:"id"`   // of the environment, as it is marked
	Name    string    `json:"name"` // of the environment
	What    string    `json:"what"` // "container", "directory", "sandbox", [WhatImage], [WhatSnapshot]
	Ref     string    `json:"ref"`  // its name or path there
	Running bool      `json:"running"`
	Created time.Time `json:"created,omitzero"`
	// Home is the state directory that the record is to be in; only its owner
	// may call the thing an orphan.
	Home string `json:"home,omitempty"`
	// Job is the job whose attempt it was made for; "" is none.
	Job string `json:"job,omitempty"`
}
