// Package lease says who holds a directory that one process at a time may
// write: an overlay, a warm environment.
//
// Leases are numbered files, lease.1.json, lease.2.json and so on, each created
// once; the one with the highest number counts. Giving one back creates
// lease.N.free beside it, and taking the directory creates number N+1. So no
// file that another process may rely on is ever renamed or removed, which on a
// network file system cannot be done without a moment in which two own it.
//
// A holder is told from a later process with the same number by its start
// time, and counts as gone only when that is proven, see [Gone].
package lease
