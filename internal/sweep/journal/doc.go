// Package journal keeps what the tasks of a sweep did: docs/sweeps.md, Journals.
//
// A worker writes two kinds of files, from their beginning to their end and alone:
// results, a row of records of 64 bytes, and output.N, what tasks have written. A
// file that was cut anywhere is read as far as it is whole. Fold puts the results of
// all workers together, by the one rule which of them counts, and keeps that in a
// cache, so that a look at a million tasks reads a few megabytes.
package journal
