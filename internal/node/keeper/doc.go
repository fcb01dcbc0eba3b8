// Package keeper keeps a warm environment: a runner whose container stays open,
// for clients that come and go, until it was idle for its lifetime. Package
// container opens and ends the place itself, as for jobs.
//
// # Clients
//
// A client connects to a unix socket that only its user can reach. The keeper
// says one line, "berth-keeper VERSION ready", and from then on speaks the
// protocol of a guest (package wire): to its clients it is one, so a client is
// a [berth/internal/link/session.Session] whatever stands between. Requests of
// commands and of files are handed to the guest inside, each on a stream of its
// own, and their frames pass undecoded but for credits and the end; the two
// ends' flow control bounds what waits here, so a client that does not read
// holds up nothing but its own commands. Requests with wire.StartMessage.Keep
// are answered by the keeper itself: its state, the end, background processes,
// the keys of credentials. A keeper that a scheduler has started has no keys, and
// says so in its hello (wire.GuestHello.NoKeys): whoever is about to start a command
// hands them over before it.
//
// When a client disappears, its commands are ended. A client that used to ping
// and has not for a minute has disappeared. Its Quit and End are of its own
// requests only.
//
// # Life
//
// One keeper at a time holds the lease of the environment's directory. It ends
// when nothing has run for the environment's lifetime, when it is told to, and
// when something of the place inside has ended. A request counts from the
// moment it is read; one that comes too late gets wire.ExitMessage.Again, and
// nothing of it has run. A request under way when the place inside breaks gets
// wire.ExitMessage.Lost, which says why its end is not known. The keeper pings
// the guest only while its own beat could be written and its lease stands, so
// a keeper that hangs or was fenced lets the environment go.
//
// A keeper that was killed leaves nothing that matters: its guest sees the
// stream close and ends everything. The next keeper finds the record of it,
// waits until its processes are gone, and tells that sessions start from the
// beginning.
//
// # On another machine
//
// `berth-node connect --env DIR [--make] [--no-start]` joins its standard input
// and output to the keeper of an environment on that machine, for use over
// ssh or a step of a job. On its standard error it says, one line each, [ConnectPrefix]
// and a [Report], of which the last has Ready or Error; then the conversation
// begins with the client's hello. With --make, the standard input begins with
// the environment's record, see [WriteSpec], which is kept if there is none yet;
// one with another id is refused.
package keeper
