// Package replica keeps the record of a job on two machines: the first one on a
// cluster, below a state directory that its nodes see, and a copy on the
// machine that submitted it over ssh. There is no file system between the two.
//
// What the submitter writes goes there once, before the scheduler hears of the
// job. What the runner writes comes back in rounds: one execution of
// `berth-node mirror round` for all jobs of a user on that host. Such a round is
// told what stands here already, and answers what is new. Files that are
// created once are created once here, too; files that grow are continued. How
// long a runner has been silent is told by the clock there, so that the clocks
// need not agree. After a round the copy is as if the job had run on a shared
// file system, and everything else reads it as that.
//
// Nothing that comes back is trusted: the files of an attempt that are taken,
// and their sizes, are a fixed list; names come from that list, and content of
// which a state follows is read before it becomes a file.
package replica
