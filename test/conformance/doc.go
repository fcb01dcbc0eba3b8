// Package conformance is the one suite of cases that every backend's
// environments pass, on the real thing: state, directories, variables, exit
// codes, streams, time limits, background processes, files, persistence and
// several clients at once. scripts/test runs it on each backend; the table of
// what passed is docs/conformance.md.
//
// A place is named by variables of the environment:
//
//	CONFORMANCE_BACKEND  singularity, docker, bwrap, ssh, local, sample (that of
//	                     examples/backends); modal or daytona, whose servers a
//	                     stand-in plays; or NAME, with berth-backend-NAME on PATH
//	CONFORMANCE_IMAGE    its image, where it has one
//	CONFORMANCE_HOST     of ssh
//	CONFORMANCE_OUT      a file that takes one line for each case that passed
package conformance
