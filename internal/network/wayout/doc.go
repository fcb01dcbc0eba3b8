// Package wayout has the ways on which the connections of a task leave its node, once
// package judge has allowed them.
//
//   - [Node] resolves and dials on the machine of the supervisor.
//   - [Proxy] has a proxy dial by name. It resolves itself, so the judge sees no address.
//   - [Relay] has a process on another machine resolve and dial, which comes to the
//     supervisor by itself. The judge sees the addresses, and the relay dials the one that
//     it is told.
//
// # The relay
//
// The supervisor listens on a unix socket on its node ([Listen]). Where it is, and a secret,
// stand in relay.json of the attempt's or environment's directory, which no container
// has. A process on the node ([Join]) connects to it: both sides look at the other's user and
// prove, without saying it, that they know the secret. What follows on the stream is package
// trunk's, with the supervisor at the near side; it may be passed on to where the relay is,
// by a step of a scheduler. [Serve] is the relay there.
//
// One relay at a time is taken. A second one is refused while the first is heard, and takes
// its place when it is not. While there is none, look-ups and connections wait.
//
// The relay does not trust the supervisor's judgement alone: addresses that package policy
// refuses, and those of its own machine, it dials only where a rule with the address itself has
// opened them, which the request says.
package wayout
