// Package judge carries the connections of a task, in its supervisor, outside of the
// container. What is inside says what it wants; what it may have is decided here, by
// package policy, and nothing that it says is believed.
//
// # A flow
//
// [Judge.Flow] takes one connection: the host that a program asked for, a port, and
// a stream to the program.
//
//   - The name is judged. A literal address is one that was asked for as such.
//   - The first bytes are read before anything leaves where the port is 443 (a TLS
//     ClientHello with the name in it) or 80 (that, or HTTP/1 requests, all of whose
//     hosts are the name). On other ports the connection is made, and what begins as
//     a ClientHello has to have the name in it. Rules of opaque end all of this.
//   - The name is resolved once, all addresses are judged, and the first that is allowed
//     and answers is dialled by its number. There is no second look-up, so an answer
//     that changes (rebinding) changes nothing.
//   - Where what connects is what resolves ([Options].DialName), the name alone is judged.
//   - Bytes are copied both ways, and the end of one direction is passed on.
//
// HTTP is read by a small strict reader. What is not plainly one request is refused:
// two hosts, folded lines, a length beside an encoding, line ends without CR, chunk
// extensions, trailers. `Upgrade` is left out of requests but for websocket on a
// connection's first one; when the server has answered 101, reading ends.
//
// # Limits
//
// A [Limits] value bounds flows, look-ups, names, bytes and times. A name that is
// resolved is counted when it is first asked for, by [Judge.Lookup] or by a flow, so
// that many names (a tunnel in DNS) are slow and end, and many flows to one are not.
// A flow holds two buffers of 16 KiB; what does not read holds up its own flow alone.
//
// Every decision is an [Entry]: one for each flow, one for each question for a name
// that was refused, one for the first question for an allowed one.
package judge
