// Package faults breaks a real Slurm cluster under berth's jobs and looks
// whether berth keeps its promises: the numbered cases of docs/reliability.md,
// and random schedules of faults ([scripts/chaos]). It is built with the tag
// "faults" and run by scripts/test.d/faults, on a cluster of its own.
//
// [scripts/chaos]: ../../scripts/chaos
package faults
