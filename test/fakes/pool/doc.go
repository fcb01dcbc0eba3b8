// Package pool is a second cluster scheduler, for tests: it shares no word with
// Slurm, and shows that neither the engine nor the programs for the nodes need one.
//
// There is no daemon. The queue is a directory, the "yard", which all processes see.
// Every job is a ticket in it, with an id such as p-0017.pool, and one detached
// process looks after it, its shepherd: it waits for the ticket's turn, runs the job
// script as a child of its own, ends it, starts it again, and writes down how it
// ended. All nodes are this machine. A ticket's states are Q (it waits), H (it is
// held), R (it runs), S (it is suspended), F (it ended by itself) and X (it was
// ended). A process of a job finds its ticket in the variables POOL_*.
//
// [Pool] is the scheduler as a client sees it, [Inside] as a process in a job does;
// [Main] is the programs of the scheduler, which a test binary has to be, too.
package pool
