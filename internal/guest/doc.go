// Package guest is the small program inside an environment: it starts commands
// there and tells their output and their end, over its standard input and
// output, to whoever opened the environment (package session). What happened
// in a container can be learnt only from within: the container program's own
// exit code says 255 for everything.
//
// It makes a HOME, because a container without the user's home has none; it is
// the parent of everything that loses its parent, so that nothing escapes it;
// and it leaves, with all that runs, when its stream closes or when nobody has
// pinged it for a while. So a runner that was killed, or hangs, or lost its
// right to run, leaves nothing behind.
//
// The standard output belongs to the protocol. Trouble of the guest itself is
// told on the standard error.
package guest
