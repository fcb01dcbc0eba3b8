// Package agents reads what agents write while they work: a [Decoder] for each of their
// formats makes the same few events of it, a [Meter] says when a cap is met, and a
// [Transcript] keeps them and shows them to people.
//
// All of it comes from where the task runs, and so may be anything: memory is bounded,
// what is no event is text, and no text has control characters. It is linked into the
// program for the nodes: what needs the configuration is in package adapters.
package agents
