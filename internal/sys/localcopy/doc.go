// Package localcopy keeps processes that live long away from the file system that
// their program was started from. A page of a program that is not in memory is
// read when it is wanted; where that file system has gone meanwhile, or has
// forgotten the file (a file server that fails over, an eviction, a connection
// that was made again), the kernel ends the process with SIGBUS. So the guest is
// started from a copy on the node's own disk, and a runner or keeper, which is
// started before it knows where that is, changes its pages for those of one.
package localcopy
