// Package jobs is the centre of berth: the words of the project as types, and
// the interfaces that schedulers, backends and places implement.
//
// It does no I/O and reads no clock, so that what a job is and what should
// happen next can be tested as plain values. A [Task] is the user's request; a
// [Spec] is the same with every value settled, as it stands in the ledger; a
// [Record] is all that is known of a job, read back from disk; and [StateOf]
// computes a [State] from a Record. When a scheduler is unavailable or gives no
// answer, nothing here turns that into a failure: silence is "unknown", and the
// last known state stays.
package jobs
