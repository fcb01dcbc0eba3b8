// Package allocations keeps environments in allocations of a scheduler: the keeper of
// such an environment is the batch process of a job, which is asked for when
// the environment is first used, given back when it was idle for its lifetime,
// and followed by another one, over the same files, when its time is up or its
// node is lost.
//
// Clients reach the keeper through one step of that job, which a connection
// holder on their machine keeps open (package mux).
//
// What is known of an environment's allocations stands below its directory:
//
//	allocations/0001/allocation.json  asked for: made before the scheduler hears of it
//	allocations/0001/script.sh        the job script
//	allocations/0001/submitted.json   the scheduler took it
//	allocations/0001/ended.json       what became of it
//	allocations/0001/reports          what its keeper said of its start
//	allocations/0001/scheduler.log    of the job script
//
// Each is written once. Who makes the directory may ask for that allocation;
// everybody else waits for it.
package allocations
