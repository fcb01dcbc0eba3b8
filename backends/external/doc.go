// Package external is the backend of services that are reached by a program of
// their own, berth-backend-NAME: one [Backend] for each NAME. What the two say
// to each other is package protocol; docs/backend-protocol.md tells it.
//
// One process answers one request. It gets a file with the request, which has
// no secret in it, and of its user's environment what [Environ] lets through.
// Its answers are not trusted: each line is bounded, each word is checked, and
// a program that hangs, floods, contradicts itself or ends without an answer is
// an error that names it, and is ended with all that it has started. An opening
// that goes wrong on berth's side leaves a sandbox that has a name and an end
// of its own, which the next opening finds.
//
// A sandbox is berth's only by its tags; the tag of the owner is a random word
// of the state directory, so that another user's are never taken for it.
package external
