// Package ssh is the backend that runs commands on another host, through the
// system's own ssh program: the user's keys, agent, jump hosts and
// configuration count as they do by hand. Nothing is contained there: commands
// have all the rights of the user.
//
// All calls to one destination ride on one connection (ssh's ControlMaster),
// which ends by itself five minutes after its last use. Nothing here ever ends
// it, because others may be using it: the end of one environment never cuts
// another. A control socket whose master is dead is replaced by ssh itself.
//
// An environment is kept by berth-node on the host: its keeper, its guest and
// its background work go on when the link breaks. [Backend.Dial] reaches it
// with one execution over the connection; the program is put there once, by
// its hash, when it turns out to be missing.
//
// The login shell of the host may be anything: sh, csh, fish, one that prints a
// banner. It is given one line that all of them read alike, which hands over to
// /bin/sh; see anyShell.
package ssh
