package session

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"berth/internal/link/wire"
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
	// Pipes makes ways for much output and input, see [LocalPipes]; nil is
	// none. Where the guest cannot open them, the bytes go in frames like all
	// others.
	Pipes Pipes
	// Login says that the shells of sessions begin as login shells do.
	Login bool
	// Dir is where sessions begin; "" is HOME.
	Dir string
	// Env is the environment of commands, NAME=VALUE, in place of the one that
	// the guest was started with; empty is that one.
	Env []string
	// TellEnv asks for that environment, see [Guest].
	TellEnv bool
	// WritableRoot has the guest prove that the root directory of its place can
	// be written; where it cannot, the conversation fails with a [NotWritableError].
	WritableRoot bool
	// Look asks the guest what it finds of its place, see [Guest]. Whether a socket
	// that it finds may be there is the caller's to judge, before anything is
	// started: inside, root cannot be told from other users.
	Look bool
	// Proof has the guest try, with Look, what must fail in a place with a network of its
	// own; nil is not.
	Proof *wire.Proof
	// Confine has commands run with few capabilities, without a way to new ones,
	// and with a filter of system calls. The guest itself has more.
	Confine bool
	// Network decides on the connections of commands, and carries them; nil is that
	// the guest is to prepare nothing for them.
	Network Network
	// NetworkWish is what the guest prepares for it.
	NetworkWish wire.NetworkWish
	// Ask answers what programs inside ask of berth; several may at once. nil is that they
	// find no berth to ask.
	Ask func(ctx context.Context, m wire.AskMessage) wire.AskAnswer
	// Stubs are programs beside that berth which ask by their names.
	Stubs []jobs.Stub
}

// Guest is what a guest says of itself and of the place it runs in.
type Guest struct {
	Version         int        // of the protocol
	PID             int        // as the guest sees it
	OwnPIDNamespace bool       // asked for and verified by the guest
	UID             int        // inside
	Kernel          string     // uname -r
	Home            string     // chosen and writable
	Path            string     // PATH of its commands
	Shell           string     // evaluates Shell commands
	Env             []string   // of commands; only with TellEnv
	Seen            *jobs.Seen // of its place; only with Look
	AskDir          string     // for what comes back of jobs that are asked for; only with Ask
	// Network is what it has prepared; only with a Network.
	Network *wire.NetworkHad
	// NoKeys is a keeper's that waits for the keys of its credentials ([wire.KeepKeys]).
	NoKeys bool
}

// StartRequest is a command to start in the environment.
type StartRequest struct {
	// Command is an argv or a text for the shell. Exactly one is set; with TTY
	// none may be, which is an interactive shell.
	Command jobs.Command
	// Port, in place of a command, is a TCP port of the loopback inside, to which the
	// standard streams are joined. Exit code [jobs.CodeAgain] is that it took no connection.
	Port int
	// Session names the shell that evaluates the command, words as well as
	// text; "" is none. What the command changes stays: directory, variables,
	// functions, aliases, options. One command at a time runs in a session,
	// the others wait for it, see [Process.Begun].
	Session string
	// Fork evaluates the command beside the session, from a copy of its state,
	// and does not wait; nothing stays.
	Fork bool
	// TTY makes a terminal of this size the command's standard streams; what it
	// shows goes to stdout. In a session it implies Fork.
	TTY *wire.Size
	// Timeout ends the command so long after it began, with code 124: TERM,
	// and KILL to all that it started after Grace; 0 is never. A Grace of 0 is
	// 2 s, a negative one is none.
	Timeout, Grace time.Duration
	// MaxMemory is what the command and all that it starts may take: when a look, once a second,
	// finds more, they are killed. 0 is no bound.
	MaxMemory jobs.Bytes
	// Env is added to the environment's own: NAME=VALUE. Secrets come this
	// way; they are never put on a command line or on a disk.
	Env []string
	// Dir is the working directory inside; "" is the session's, or without one
	// the guest's own.
	Dir string
	// Prompt is written to a private file, whose path is in
	// $BERTH_PROMPT_FILE, and is the command's standard input. Nil is none.
	Prompt []byte
	// Stdin is what the command reads when there is no Prompt; nil is empty. A
	// reader that blocks keeps its goroutine after the command's end, until it
	// returns.
	Stdin io.Reader
	// Merge makes the command's standard error the same pipe as its standard
	// output: the writer of that takes both, in the order in which the command has
	// written them. Of a guest that is too old for this they come as they arrive.
	Merge bool
	// Own gives the command a room of its own.
	Own *wire.OwnRoom
	// Report names a variable with the path of a named pipe: what the command writes to that goes
	// to Reports. It is for a command without a session.
	Report  string
	Reports io.Writer
	// Much says that the command may write much to stdout: the rest of much
	// then comes through a pipe of its own, see [Options].
	Much bool
	// Left asks what the command has left running, see [Result].
	Left bool
}

// Result is how a command ended.
type Result struct {
	Exit           jobs.Exit
	MaxRSS         jobs.Bytes // of the largest process waited for, or what all had at a look for MaxMemory; 0 when it did not start
	Started, Ended time.Time  // by the clock of the guest's machine; zero when it did not start
	// Dir is the session's directory after the command; "" without a session.
	Dir      string
	Note     string // for people; "" is none
	TimedOut bool
	// OverMemory says that it was killed for [StartRequest.MaxMemory].
	OverMemory bool
	// Unpinged says that the guest has ended the command, because no ping
	// came for too long.
	Unpinged bool
	// NoRoom says that the command has not begun, as no room could be made for it.
	NoRoom bool
	// Left is what the command had left running; nil is not known: it was not asked for,
	// the guest is too old, or the command was ended.
	Left *jobs.LeftRunning
	// ShellEnded says that the command has ended its session's shell. The next
	// one begins with the state that was last seen.
	ShellEnded bool
	File       *wire.FileResult // the answer to a file request
	Keep       json.RawMessage  // the answer to a keeper's request
	// Output is the first error of the writers given to Start. What came
	// after it was thrown away, and the command was not told.
	Output error
}
