// Package staging keeps copies of images on a node's own disk: the SIF, or the
// image unpacked, made once on the node and used by all of the user's jobs,
// ranks and environments there.
//
// A copy is made under a lease, beside its name, and put in place by a rename;
// what a killed maker has left is removed by the next one. Who uses a copy says
// so in a file, made before the lease is looked at; who removes one takes the
// lease before these files are read. So one of the two always sees the other,
// and a copy in use is never removed. A copy that anybody has touched since, or
// that was made before the last boot (it is never synced), is not used.
//
// Nothing here fails what wants to run: an error says why there is no copy, and
// the image is then used where it is.
package staging
