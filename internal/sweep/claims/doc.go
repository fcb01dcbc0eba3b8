// Package claims is who has which batch of a sweep: docs/sweeps.md, Claims, and the
// model docs/protocol/claims.pml.
//
// A batch has a chain of files LO-HI.N, each made once by link(2), which is what one
// process of all can do on NFS and sshfs, too. Its highest number is its generation,
// and what stands in it says who may make the next one. There are no locks, no
// clocks of two machines are compared, and a look that is too old costs a try.
package claims
