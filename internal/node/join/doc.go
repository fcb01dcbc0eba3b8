// Package join brings a second guest into the place of a job that runs, so that
// a person or an agent can look around beside the task: `berth shell JOB` and
// `berth exec --job JOB`.
//
// On the job's node [Main], `berth-node join`, finds the task's container and
// starts the guest in it; the client talks to that guest over join's standard
// input and output, by package wire, and reads [keeper.Report]s on its standard error.
// Who starts join there is the client's choice: a step in the job's allocation,
// or the client itself where the job runs on its own machine.
//
// The task may be hostile, and so:
//
//   - The container is found from outside: the record names the runner, and its
//     container is the PID namespace below that. Start times make sure that a
//     number that was used again is never taken for it.
//   - Nothing is looked up among the container's files from outside, and no
//     value of the container is in the environment of a program that runs
//     outside.
//   - The guest is a copy of this program in memory, sealed: neither something
//     that the task put in the program's place, nor the program's file on the
//     host, which the task could then write to by way of /proc.
//   - It has no privilege that the task has not: no capability, and none to be
//     had by an exec (PR_SET_NO_NEW_PRIVS). It is in a session of its own,
//     without a terminal; its streams are pipes, and no other descriptor of the
//     host is open in it.
//
// What speaks from inside is as trustworthy as the task: they have one user.
//
// Everything that is started through join ends with it. When the container ends,
// so does join. A client that is gone is noticed by the end of the stream, or
// because its pings stay away.
package join
