// Package store is the ledger: the record of every job as small files.
//
// NFS and Lustre are the normal case. Every file has one writer or is created
// once; nothing is appended by two processes; no lock, no database and no
// notification is relied upon. What a job's state is follows from which files
// exist ([berth/jobs.StateOf]), so no stored state can disagree with them.
// docs/state.md describes every file.
//
// A job's directory appears in one rename after all its first files are on the
// disk, so a crash leaves a whole record or none (a left ".new-" directory is
// no record).
package store
