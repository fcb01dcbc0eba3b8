// Package run starts programs on this machine. It is the only package that may
// do so: everything else is given a [jobs.Starter], so that a remote place, a
// command log or an injected fault can stand in its way.
//
// Every command gets a process group of its own, so that a Ctrl-C meant for
// berth does not reach it and the whole group can be killed when the context
// ends. A process that a command leaves behind, with the command's output
// still open, never holds up [jobs.Process].Wait: see [Drain].
package run
