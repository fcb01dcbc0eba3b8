// Package supervise is what the supervisors of a node have in common: the runner
// of a job, each of its ranks, the keeper of an environment, and what joins a
// client to the place of a job.
package supervise
