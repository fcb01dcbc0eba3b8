// Package container opens the place that a backend describes and ends it: the
// program that holds it, the session with the guest inside, the helpers that
// its file system lives in. The runner of a job and the keeper of a warm
// environment both use it; there is no second way.
//
// The process that opens a container must be a child subreaper, and everything
// below it counts as the container's: closing one ends all of that, and
// returns when nothing is left. When this process is killed, the guest sees
// its stream close and ends the container.
package container
