// Package sweep is the directory of a sweep: its definition, the table of its tasks,
// its workers (docs/sweeps.md, On disk). A file in it has one writer or is made once.
package sweep
