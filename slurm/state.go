package slurm

import (
	"strings"

	"berth/jobs"
)

// states says what Slurm's words mean (squeue(1), "JOB STATE CODES"). A word
// that is not here is no state, and the job stays what it was.
var states = map[string]jobs.State{
	"PENDING":       jobs.StatePending,
	"CONFIGURING":   jobs.StatePending,
	"REQUEUED":      jobs.StatePending,
	"REQUEUE_FED":   jobs.StatePending,
	"REQUEUE_HOLD":  jobs.StatePending,
	"SPECIAL_EXIT":  jobs.StatePending,
	"RESV_DEL_HOLD": jobs.StatePending,
	"RUNNING":       jobs.StateRunning,
	"COMPLETING":    jobs.StateRunning, // processes may be left
	"SUSPENDED":     jobs.StateRunning,
	"STOPPED":       jobs.StateRunning,
	"SIGNALING":     jobs.StateRunning,
	"STAGE_OUT":     jobs.StateRunning,
	"RESIZING":      jobs.StateRunning,
	"EXPEDITING":    jobs.StatePending,
	"COMPLETED":     jobs.StateCompleted,
	"FAILED":        jobs.StateFailed,
	"CANCELLED":     jobs.StateCancelled,
	"TIMEOUT":       jobs.StateTimeout,
	"OUT_OF_MEMORY": jobs.StateOutOfMemory,
	"NODE_FAIL":     jobs.StateError,
	"BOOT_FAIL":     jobs.StateError,
	"LAUNCH_FAILED": jobs.StateError,
	"RECONFIG_FAIL": jobs.StateError,
	"PREEMPTED":     jobs.StateError,
	"DEADLINE":      jobs.StateError,
}

// word reduces what is printed to one of Slurm's words: sacct says "CANCELLED
// by 1000" and, where a column is too narrow, "OUT_OF_ME+".
func word(printed string) (w, rest string) {
	w, rest, _ = strings.Cut(strings.TrimSpace(printed), " ")
	if cut, ok := strings.CutSuffix(w, "+"); ok && len(cut) >= 6 {
		full := ""
		for s := range states {
			if strings.HasPrefix(s, cut) {
				if full != "" {
					return w, rest // two words begin so
				}
				full = s
			}
		}
		if full != "" {
			w = full
		}
	}
	return w, rest
}

// status makes a Status of Slurm's words for the job id.
func status(id, printed, reason string) jobs.Status {
	w, rest := word(printed)
	switch reason {
	case "None", "(null)":
		reason = ""
	}
	if w == "CANCELLED" && rest != "" {
		reason = strings.TrimSpace(rest + " " + reason)
	}
	st := jobs.Status{State: states[w], Word: w, Reason: reason}
	if st.State == jobs.StateError && reason == "" {
		st.Reason = errorReasons[w]
	}
	st.Hint = hint(id, w, reason)
	return st
}

var errorReasons = map[string]string{
	"NODE_FAIL":     "the node failed",
	"BOOT_FAIL":     "the node did not boot",
	"LAUNCH_FAILED": "the job could not be launched on its node",
	"RECONFIG_FAIL": "the node could not be reconfigured",
	"PREEMPTED":     "preempted by another job",
	"DEADLINE":      "the deadline asked for has passed",
}

// hint says what a person can do about a job that will not start, or that
// ended by no fault of the task. The reasons are Slurm's
// (job_state_reason.c).
func hint(id, w, reason string) string {
	name, _, _ := strings.Cut(reason, ",")
	switch w {
	case "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD":
		return "it is held; to let it go on: scontrol release " + id
	case "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL", "PREEMPTED":
		return "not the task's doing: submit it again"
	case "PENDING":
	default:
		return ""
	}
	switch name {
	case "JobHeldUser", "launch failed requeued held":
		return "it is held; to let it go on: scontrol release " + id
	case "JobHeldAdmin", "JobHoldMaxRequeue":
		return "it is held by the site; ask its administrators, or cancel it"
	case "DependencyNeverSatisfied":
		return "what it waits for has failed, so it never starts: cancel it"
	case "PartitionTimeLimit":
		return "it asks for more time than its partition allows and never starts: cancel it and ask for less; see: sinfo -o '%P %l'"
	case "PartitionNodeLimit", "PartitionConfig", "BadConstraints", "NodeConfig":
		return "it asks for more than its partition has and may never start; see: sinfo -o '%P %c %m %G'"
	case "ReqNodeNotAvail", "PartitionDown", "PartitionInactive":
		return "the nodes it needs are down or reserved; see: sinfo"
	case "InvalidAccount", "InvalidQOS":
		return "its account or QOS is not valid any more: cancel it and name another"
	}
	return ""
}
