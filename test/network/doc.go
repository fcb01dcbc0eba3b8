// Package network tests what a task reaches: as an ordinary user with the real command line, on a
// machine of its own that a small internet stands beside (test/fakes/internet). Clients that people use are tried
// with a name that is allowed and one that is not, and so is every way out that is known. Of what was refused the
// internet must not have seen a packet.
package network
