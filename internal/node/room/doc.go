// Package room makes a room: a user, mount, PID and network namespace below a
// container, in which commands run that may reach only what berth hands them.
// It answers their questions for names with addresses of its own, and takes the
// connections to these (docs/network.md). It decides nothing: what is allowed,
// and where a connection leads, is asked of the caller.
//
// [Enter] starts the program again as the first process of the room. That one
// keeps capabilities in the room, so that commands, which have none, can neither
// trace it nor undo what it has set up. Commands are to be started from a thread
// that [DropCapabilities] has been called on, with no_new_privs set.
//
// [Begin] makes a room for one command, with files of its own ([Own]): the first process calls
// [Arrive]. Many of these may stand below one container, and have an IPC namespace each. With
// [Doors] such a room has a network as one by [Enter] has: its first process hands what comes to
// these to the process outside, which has it decided by [Stay.Judge].
//
// [Enter] makes no IPC namespace: the container's own keeps commands apart from the
// host, and nothing but this program runs in the container outside of the room.
// Abstract sockets belong to the network namespace.
package room
