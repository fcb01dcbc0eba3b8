// Package worker is a process that runs the tasks of a sweep: it claims a batch,
// records again what former holders of it have done, runs the rest by fork and exec,
// several at once, and closes it (docs/sweeps.md).
package worker

// Verb is the word of berth-node for it.
const Verb = "sweep-worker"
