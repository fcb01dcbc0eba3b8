// Package guest is the small program inside an environment: it starts commands
// there and tells their output and their end, over its standard input and
// output, to whoever opened the environment (package session). What happened
// in a container can be learnt only from within: the container program's own
// exit code says 255 for everything.
//
// It makes a HOME, because a container without the user's home has none; it is
// the parent of everything that loses its parent, so that nothing escapes it;
// and it leaves, with all that runs, when its stream closes or when no ping
// came for a while. So a runner that was killed, or hangs, or lost its
// right to run, leaves nothing behind.
//
// # Sessions
//
// Each session has a warm shell, a bash where there is one, which evaluates one
// command at a time; the others wait in the order in which they came. The shell
// opens FIFOs as the command's streams, so that what a command leaves running
// never writes into a later one's output; it gets its orders from a file in
// memory and writes its state behind them (order.go). The guest keeps the last
// state as text, and when the shell ends, because a command exits it, is killed
// or runs out of time, the next command begins in a new shell with that state
// (dump.go). Values of variables that a client gives for one command are never
// on a disk, on a command line or in a state.
//
// A command with Fork, or a terminal, is a process of its own that begins with
// a copy of the state (forked_linux.go). What ends with a command is what it has
// started, however far that went, and never what an earlier one of the session
// has left running (end_linux.go).
//
// What does not work: functions named builtin, eval or exec do not outlive
// their command, set -n makes a session hang until its command is ended, set -r
// makes it lose its shell with each command, traces of set -x are nested four
// deep, and a POSIX shell keeps its functions only as long as it lives.
//
// The standard output belongs to the protocol. Trouble of the guest itself is
// told on the standard error.
package guest
