// Package failpoint kills berth at named points, so that a test can see what is
// left of it there. It does so only in a program built with the tag
// "failpoint"; without it all of this is compiled to nothing.
//
// BERTH_FAILPOINT=NAME:kill makes a process send itself SIGKILL where it comes
// to the point for the first time, NAME@N:kill for the N-th. Without the variable the
// same is read from the file .berth-failpoint in $HOME, which reaches the nodes
// too; whoever is killed by it removes it first, so that it counts once. Where
// .berth-failpoint.log stands beside it, every point that is passed is written
// into that. BERTH_FAILPOINT_LATER=DURATION puts the clock of the verbs forward.
package failpoint
