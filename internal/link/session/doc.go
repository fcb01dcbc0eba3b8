// Package session is berth's side of a conversation with a guest: it starts
// commands in an environment, receives their output and learns how they ended,
// over any pair of byte streams that reach a guest.
//
// A command may belong to a session's shell, have a terminal, or be a request
// for files; a keeper passes the streams of other clients through with Relay.
//
// A Session promises that a slow receiver of one command's output holds up
// that command only: pings, exits and other commands pass. It never decides
// that a guest is healthy; the caller pings, and the guest ends by itself when
// pings stay away. When the guest disappears, everything that waits gets
// [ErrGuestGone], unless the command's end had been told before.
package session
