package session

import (
	"io"
	"time"

	"berth/jobs"
)

// Options are what a guest is told when the conversation begins. The zero
// value is usable.
type Options struct {
	// StartTimeout bounds the time until the guest speaks; 0 is 60 s, because
	// a container may start slowly from a cold file system.
	StartTimeout time.Duration
	// PingTimeout is how long the guest lives without a ping; 0 is 30 s,
	// negative is for ever.
	PingTimeout time.Duration
	// LeaveGrace is what commands get between TERM and KILL when the guest
	// leaves by itself, because its stream closed or pings stayed away; 0 is
	// 2 s, negative is none.
	LeaveGrace time.Duration
	// Home is the wanted HOME; "" is the guest's own $HOME. When it cannot be
	// made or written, the first of HomeFallback that can is taken, and last
	// /tmp/home-UID.
	Home         string
	HomeFallback []string
	// User is the value of USER and LOGNAME where the environment has none.
	User string
	// OwnPIDNamespace says that the environment has a PID namespace that
	// nothing but the guest and its commands live in. The guest checks this
	// before it relies on it.
	OwnPIDNamespace bool
}

// Guest is what a guest says of itself and of the place it runs in.
type Guest struct {
	Version         int    // of the protocol
	PID             int    // as the guest sees it
	OwnPIDNamespace bool   // asked for and verified by the guest
	UID             int    // inside
	Kernel          string // uname -r
	Home            string // chosen and writable
	Path            string // PATH of its commands
	Shell           string // evaluates Shell commands
}

// StartRequest is a command to start in the environment.
type StartRequest struct {
	// Command is an argv or a text for the shell. Exactly one is set.
	Command jobs.Command
	// Env is added to the environment's own: NAME=VALUE. Secrets come this
	// way; they are never put on a command line or on a disk.
	Env []string
	// Dir is the working directory inside; "" is the guest's own.
	Dir string
	// Prompt is written to a private file, whose path is in
	// $BERTH_PROMPT_FILE, and is the command's standard input. Nil is none.
	Prompt []byte
	// Stdin is what the command reads when there is no Prompt; nil is empty. A
	// reader that blocks keeps its goroutine after the command's end, until it
	// returns.
	Stdin io.Reader
}

// Result is how a command ended.
type Result struct {
	Exit           jobs.Exit
	MaxRSS         jobs.Bytes // of the largest process waited for; 0 when it did not start
	Started, Ended time.Time  // by the clock of the guest's machine; zero when it did not start
	// Output is the first error of the writers given to Start. What came
	// after it was thrown away, and the command was not told.
	Output error
}
