package slurm

import "strings"

// reason is what one of Slurm's words for why a job waits means here.
type reason struct {
	plain string // goes on after "it waits: "
	help  string // what would help, with the command; {id} is the job's
	// never says that the job does not start by itself: the user or the site
	// has to act.
	never  bool
	detail string // what Slurm says beside the word, such as which nodes
}

const (
	// partitions shows what partitions have and allow.
	partitions = "see: sinfo -o '%P %a %l %c %m %G'"
	cancelIt   = "berth cancel it, and submit it again with less; " + partitions
	nodesDown  = "see which nodes are down and why: sinfo -R; when they are back it starts by itself"
)

// reasons are the names of Slurm's src/common/job_state_reason.c, as it was from
// 22.05 to 26.05. The limits of associations and QOS, of which there are many,
// are read by [limitOf].
var reasons = map[string]reason{
	"Priority": {plain: "other jobs come first", help: "a job that asks for less time or memory may fit in between: berth explain tries that"},
	"Resources": {
		plain: "the nodes it needs are in use, and it is the next",
		help:  "a job that asks for less time, memory or CPUs may fit sooner: berth explain tries that",
	},
	"Prolog": {
		plain: "the site's prolog makes its node ready",
		help:  "see: scontrol show job {id}; it starts by itself, unless the prolog hangs: ask the administrators",
	},
	"Cleaning": {
		plain: "it was put back into the queue, and what it left on its nodes is being cleaned up",
		help:  "it starts by itself; where it stays so: sinfo -R",
	},
	"SchedDefer":               {plain: "the scheduler looks at new jobs only now and then", help: "it is looked at in turn; see: sdiag"},
	"Dependency":               {plain: "another job must end first", help: "see for which: scontrol show job {id}"},
	"DependencyNeverSatisfied": {plain: "what it waits for has failed, so it never starts", help: "berth cancel it", never: true},
	"BeginTime":                {plain: "the time it may start at has not come", help: "to let it start now: scontrol update jobid={id} starttime=now"},
	"Licenses":                 {plain: "the licenses it asks for are in use", help: "see: scontrol show licenses"},
	"JobArrayTaskLimit": {
		plain: "as many tasks of its array run as it allows at once",
		help:  "it starts when others of its array have ended; see: squeue --me",
	},
	"JobHeldUser":  {plain: "it is held, by its user", help: release, never: true},
	"JobHeldAdmin": {plain: "it is held, by the site", help: "ask its administrators, or berth cancel it", never: true},
	"JobHoldMaxRequeue": {
		plain: "it is held, because it was put back into the queue too often",
		help:  "its node or prolog may be broken; ask the administrators; then, " + release,
		never: true,
	},
	// A text of slurmctld's in place of a name; so are those that name another
	// failure before these two words.
	"requeued held": {
		plain: "it could not be launched, was put back into the queue, and is held",
		help:  "its node may be broken: sinfo -R; then, " + release,
		never: true,
	},
	"ReqNodeNotAvail": {
		plain: "nodes that it needs are down, drained or reserved",
		help:  nodesDown + "; a reservation ahead lets only jobs in that end before it: scontrol show reservation",
	},
	"NodeDown":     {plain: "a node that it needs is down", help: nodesDown},
	"FrontEndDown": {plain: "no front end node is up to start it", help: nodesDown},
	"PartitionDown": {
		plain: "its partition is down",
		help:  "see: sinfo -o '%P %a'; ask the administrators, or: scontrol update jobid={id} partition=ANOTHER",
	},
	"PartitionInactive": {
		plain: "its partition starts no jobs now",
		help:  "see: sinfo -o '%P %a'; ask the administrators, or: scontrol update jobid={id} partition=ANOTHER",
	},
	"PartitionNodeLimit": {plain: "it asks for more nodes than its partition gives to a job", help: cancelIt, never: true},
	"PartitionTimeLimit": {
		plain: "it asks for more time than its partition allows, so it never starts",
		help:  "scontrol update jobid={id} timelimit=LESS, or berth cancel it and ask for less; see: sinfo -o '%P %l'",
		never: true,
	},
	"PartitionConfig": {plain: "its partition has nothing that can take such a job", help: cancelIt, never: true},
	"BadConstraints": {
		plain: "no node has what it asks for (constraint, memory, CPUs), so it never starts",
		help:  "berth cancel it, and submit it again with less, or another constraint; see: sinfo -o '%P %c %m %f %G'",
		never: true,
	},
	"Constraints":        {plain: "no node has what it asks for", help: cancelIt, never: true},
	"MaxMemPerLimit":     {plain: "it asks for more memory for a CPU or a node than is allowed", help: cancelIt, never: true},
	"Reservation":        {plain: "its reservation has not begun, or is full", help: "see: scontrol show reservation"},
	"ReservationDeleted": {plain: "its reservation was deleted", help: "scontrol update jobid={id} reservationname=; then, " + release, never: true},
	"ReservationInvalid": {
		plain: "its reservation is not valid for it",
		help:  "see: scontrol show reservation; scontrol update jobid={id} reservationname=",
		never: true,
	},
	"InvalidAccount": {
		plain: "its account is not valid any more",
		help:  "berth cancel it, and name another account; yours: sacctmgr show assoc user=$USER",
		never: true,
	},
	"InvalidQOS": {
		plain: "its QOS is not valid any more",
		help:  "berth cancel it, and name another QOS; yours: sacctmgr show assoc user=$USER format=account,qos",
		never: true,
	},
	"QOSNotAllowed": {
		plain: "its partition does not take its QOS",
		help:  "berth cancel it, and name another QOS or partition; see: scontrol show partition",
		never: true,
	},
	"AccountNotAllowed": {
		plain: "its partition does not take its account",
		help:  "berth cancel it, and name another account or partition; see: scontrol show partition",
		never: true,
	},
	"AccountingPolicy":     {plain: "a limit of the site's accounting holds it back", help: assocHelp},
	"QOSUsageThreshold":    {plain: "its QOS has used too much lately for jobs to start", help: qosHelp},
	"BurstBufferResources": {plain: "there is no room in the burst buffer", help: "see: scontrol show burstbuffer"},
	"BurstBufferStageIn":   {plain: "its data is being copied into the burst buffer", help: "see: scontrol show burstbuffer"},
	"BurstBufferOperation": {
		plain: "an operation of the burst buffer failed, and it is held",
		help:  "see: scontrol show burstbuffer; then, " + release,
		never: true,
	},
	"PowerNotAvail": {
		plain: "there is not enough power for its nodes under the site's limit",
		help:  "it starts when others end; ask the administrators",
	},
	"PowerReserved":         {plain: "power for its nodes is reserved for others", help: "it starts when others end; ask the administrators"},
	"FedJobLock":            {plain: "the clusters of the federation settle who starts it", help: "see: squeue --federation --me"},
	"SystemFailure":         {plain: "Slurm itself, or the file system, failed", help: "ask the administrators"},
	"JobLaunchFailure":      {plain: "it could not be launched on its node", help: "see: sinfo -R"},
	"NonZeroExitCode":       {plain: "it ended with another exit code than 0", help: "see: berth logs --runtime"},
	"RaisedSignal":          {plain: "it ended by a signal", help: "see: berth logs --runtime, and sacct -j {id}"},
	"TimeLimit":             {plain: "it reached its time limit", help: "ask for more in [resources] time"},
	"InactiveLimit":         {plain: "it was idle for longer than the site allows", help: "ask the administrators for InactiveLimit"},
	"OutOfMemory":           {plain: "a process of it was killed for memory", help: "raise [resources] memory"},
	"DeadLine":              {plain: "it could not end before the deadline that was asked for", help: "name a later --deadline, or none"},
	"AssociationJobLimit":   {plain: "as many jobs of its association run as it may have", help: assocHelp},
	"AssociationTimeLimit":  {plain: "its association's limit on time is reached", help: assocHelp},
	"QOSJobLimit":           {plain: "as many jobs of its QOS run as it may have", help: qosHelp},
	"QOSResourceLimit":      {plain: "what its QOS may use is in use", help: qosHelp},
	"QOSTimeLimit":          {plain: "its QOS's limit on time is reached", help: qosHelp},
	"QOSMinCpuNotSatisfied": {plain: "it asks for fewer CPUs than its QOS wants", help: qosHelp, never: true},

	"AssociationResourceLimit": {plain: "what its association may use is in use", help: assocHelp},
}

// sentences are what slurmctld writes in place of a name, and the name that means
// the same (state_desc in its job_mgr.c, node_scheduler.c and acct_policy.c). More
// may follow.
var sentences = []struct{ begin, name string }{
	{"Nodes required for job", "ReqNodeNotAvail"},
	{"Job's QOS not permitted", "QOSNotAllowed"},
	{"Job's account not permitted", "AccountNotAllowed"},
	{"Requested partition configuration not available", "PartitionConfig"},
	{"Requested nodes are busy", "Resources"},
}

// reasonOf finds what a reason means. Slurm writes more behind a comma or in
// brackets: "ReqNodeNotAvail, UnavailableNodes:c1", "RaisedSignal:9(Killed)".
func reasonOf(said string) (reason, bool) {
	if strings.Contains(strings.ReplaceAll(said, "_", " "), "requeued held") {
		r := reasons["requeued held"]
		r.detail = said
		return r, true
	}
	plain := strings.ReplaceAll(said, "_", " ") // as some versions print it
	for _, t := range sentences {
		if strings.HasPrefix(plain, t.begin) {
			return reasons[t.name], true
		}
	}
	name, detail := said, ""
	if i := strings.IndexAny(said, ",:( "); i >= 0 {
		name, detail = said[:i], strings.Trim(said[i:], ",:() ")
	}
	r, ok := reasons[name]
	if !ok {
		r, ok = limitOf(name)
	}
	r.detail = detail
	return r, ok
}
