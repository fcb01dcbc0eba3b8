// Package run starts programs on this machine. It is the only package that may
// do so: everything else is given a [jobs.Starter], so that a remote place, a
// command log or an injected fault can stand in its way.
//
// Every command gets a process group of its own, so that a Ctrl-C meant for
// berth does not reach it. When its context ends it is killed, and with it all
// that it has started, unless that has a session of its own. A process that it
// leaves behind, with its output still open, never holds up
// [jobs.Process].Wait: see [Drain].
package run
