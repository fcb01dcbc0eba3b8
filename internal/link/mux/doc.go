// Package mux reaches the keeper of an environment on a machine to which only a
// command leads that takes long to start and then carries bytes: a step of the
// scheduler in an allocation, or ssh to a host from which such a step starts.
//
// # Two sides
//
// The far command ends in `berth-node connect --env DIR --mux`, beside the
// keeper. Over its standard input and output many conversations run at a time,
// each of which is one connection to the keeper's socket, byte for byte. The
// frames, windows and magics are those of package wire: a reader never waits
// for anybody, so a client that does not read holds up nothing but itself, and
// what a site prints before the first word is skipped. The frames are not
// sealed, because the conversations in them are.
//
// The near side pings. A side that hears nothing at all from the other for four
// times the interval (4 s), not even an answer, takes the link for dead. It is
// any byte that counts: on a slow link full of data, answers come late.
//
// The far side ends when its input does, when the near one is silent, and when
// the keeper has ended, which it says ([keeper.ErrNotRunning]).
//
// # The holder
//
// Such a command takes 40 ms to start, so a process on the client's machine,
// `berth-node hold`, keeps it running for all clients there until none of them
// was connected for a while. [Link] is what a client has: it connects to the
// holder's socket, or starts one. There, the client says in a line what it
// wants, is answered in lines that are [keeper.Report]s, and behind the last of
// them the conversation begins. A way to the far side and back may take as long as
// a command, so the client's first word stands behind its line already, and a
// request for the keeper is sent while the link is still being opened. What makes
// an effect is sent when the keeper has answered, so that a link that breaks before
// has done nothing. The far command's words and variables come to
// the holder over its standard input: no process list shows them.
//
// # Much data
//
// A step of Slurm carries 20 MB/s. Where both machines share the environment's directory,
// much output and input goes through files in it, in pieces: see [Link.Pipes].
// The far side stands in for the client at the named pipe of the guest.
package mux
