package jobs

import (
	"context"
	"io"
	"time"
)

// OpenPlace is where an environment is opened: the machine of its keeper.
type OpenPlace struct {
	Dir      string       // the environment's own directory, 0700; what persists lies below it
	Guest    string       // path of berth-node here
	Scratch  string       // a fresh directory of this keeper on the node's own disk, removed by it
	On       Starter      // starts programs here
	Progress func(string) // tells a person what takes long; never nil
}

// Opening is how the guest of an environment is started, once all that it
// needs stands ready.
type Opening struct {
	Argv []string // runs the guest over its standard input and output
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
}

// Opener is a backend that can keep environments.
type Opener interface {
	Backend
	// Open finds or makes what the environment consists of. It is called by
	// the one keeper that holds the environment's lease.
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
	What    string    `json:"what"` // "container", "directory", "sandbox"
	Ref     string    `json:"ref"`  // its name or path there
	Running bool      `json:"running"`
	Created time.Time `json:"created,omitzero"`
	// Home is the state directory that the record is to be in; only its owner
	// may call the thing an orphan.
	Home string `json:"home,omitempty"`
	// Job is the job whose attempt it was made for; "" is none.
	Job string `json:"job,omitempty"`
}
