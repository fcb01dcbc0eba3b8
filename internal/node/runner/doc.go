// Package runner is the process that a scheduler starts for an attempt. From
// its first instruction it is the batch process: it claims the attempt,
// prepares the place, supervises the command in it, collects what changed and
// records the exit, once.
//
// When the runner is killed, the guest sees its control stream close and ends
// the container; when the runner hangs, or its claim no longer stands, it
// stops pinging the guest, with the same effect. An attempt whose runner left
// no exit record is judged by the next client from the scheduler's word.
package runner
