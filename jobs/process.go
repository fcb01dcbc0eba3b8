package jobs

import (
	"context"
	"io"
	"os"
	"syscall"
)

// Cmd is a command to start somewhere.
type Cmd struct {
	Argv []string // Argv[0] is looked up on the place's PATH when it has no slash
	Dir  string   // "" is the place's default
	Env  []string // NAME=VALUE, the whole environment; nil is the place's own
	// Stdin is what the command reads; nil is an empty input.
	Stdin io.Reader
	// Stdout and Stderr take what it writes; nil discards.
	Stdout, Stderr io.Writer
	// Files are what the command has open beside these, from descriptor 3 on.
	// Only this machine has it.
	Files []*os.File
	// OwnMounts asks for a user and a mount namespace of its own with the
	// caller's ids, in which the command may mount. Only Linux has it.
	OwnMounts bool
	// OwnFiles asks for a user namespace of its own in which the command is
	// root: over all files of this user, whatever their modes, and over those of
	// its subordinate ids where it has any, which are those from 1 on. Root gets
	// none and needs none. Only this machine has it, and only Linux.
	OwnFiles bool
	// OwnNetwork asks, beside OwnMounts or OwnFiles, for a network namespace of its
	// own, in which there is nothing but a loopback that is down. Only Linux has it.
	OwnNetwork bool
}

// Starter starts commands in one place: this machine, an ssh host, an
// allocation, a container. Whoever drives programs is given one, so that a
// remote place, a dry run, a command log and injected faults are Starters and
// not features.
type Starter interface {
	// Start begins a command. An error means that nothing was started. When
	// ctx ends, the command is killed.
	Start(ctx context.Context, c Cmd) (Process, error)
}

// Process is a started command.
type Process interface {
	// Signal delivers a signal; after the end it does nothing.
	Signal(sig syscall.Signal) error
	// Wait waits for the end and for all output. It may be called more than
	// once and gives the same answer. An error means that the end could not
	// be found out.
	Wait() (Exit, error)
}
