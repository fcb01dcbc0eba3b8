// Package daytona is the backend "daytona": sandboxes of Daytona (daytona.io, or
// one's own installation of it), through its REST API of 2026. It is one side of
// the protocol of docs/backend-protocol.md; berth starts itself as that program.
//
// # What stands there
//
// A sandbox has the name that berth wants, berth's tags as labels, and all four
// of its timers set in the request that makes it: when it is stopped for idleness,
// archived, deleted, and when it ends whatever happens. So one whose maker died,
// or whose answer was lost, costs a bounded amount, and is found by its name. What
// has not every tag of a request is not touched.
//
// # How berth reaches it
//
// The guest runs on a terminal of the sandbox (its "PTY"), which comes as a
// WebSocket; package ttystream makes an exact stream of that. While the WebSocket is
// open, Daytona takes the sandbox to be in use, and a command costs no request.
// A new stream ends the one before it, with all that it had running.
//
// # Failure
//
// Each kind of request says by itself when it may be sent again, see retry.go.
// Nothing is sent again that may have run. A create whose outcome is not known is
// looked up by its name.
package daytona
