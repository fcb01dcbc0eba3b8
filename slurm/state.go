package slurm

import (
	"fmt"
	"strings"

	"berth/jobs"
)

// meaning is what one of Slurm's words for a job's state means here.
type meaning struct {
	// state is the job's; "" changes nothing of what is known.
	state jobs.State
	// class is what kind of trouble a final word says by itself.
	class jobs.Class
	plain string // goes on after "it "
	help  string // what a person can do; {id} is the job's
}

const (
	release = "to let it go on: scontrol release {id}"
	ours    = "not the task's doing: submit it again"
)

// states has every base state and every flag that is printed in its place, from
// 22.05 to 26.05 (squeue(1), "JOB STATE CODES"; job_state_string in Slurm's
// slurm_protocol_defs.c). A word that is not here is no state, and the job
// stays what it was.
var states = map[string]meaning{
	"PENDING":       {jobs.StatePending, "", "waits for its turn", ""},
	"CONFIGURING":   {jobs.StatePending, "", "has its nodes, which are being made ready", ""},
	"POWER_UP_NODE": {jobs.StatePending, "", "has its nodes, which are being switched on", ""},
	"REQUEUED":      {jobs.StatePending, "", "was put back into the queue", ""},
	"REQUEUE_FED":   {jobs.StatePending, "", "was put back into the queue of its federation", ""},
	"REQUEUE_HOLD":  {jobs.StatePending, "", "was put back into the queue, and is held", release},
	"SPECIAL_EXIT":  {jobs.StatePending, "", "was put back into the queue in a special state, and is held", release},
	"RESV_DEL_HOLD": {
		jobs.StatePending, "", "is held, because its reservation was deleted",
		"scontrol update jobid={id} reservationname= takes it out of the reservation; " + release,
	},
	"EXPEDITING":    {jobs.StatePending, "", "is put before others in the queue", ""},
	"RUNNING":       {jobs.StateRunning, "", "runs", ""},
	"COMPLETING":    {jobs.StateRunning, "", "is ending: processes of it may be left", ""},
	"SUSPENDED":     {jobs.StateRunning, "", "was suspended, and keeps its nodes' memory", "whoever suspended it lets it go on: scontrol resume {id}"},
	"STOPPED":       {jobs.StateRunning, "", "was stopped by a signal, and keeps its CPUs", "scancel --signal=CONT {id}"},
	"SIGNALING":     {jobs.StateRunning, "", "is being sent a signal", ""},
	"STAGE_OUT":     {jobs.StateRunning, "", "has ended, and its burst buffer is being copied back", ""},
	"RESIZING":      {jobs.StateRunning, "", "is about to change its size", ""},
	"UPDATE_DB":     {"", "", "is being written to the accounting", ""},
	"REVOKED":       {"", "", "runs on another cluster of the federation", ""},
	"COMPLETED":     {jobs.StateCompleted, "", "ended with exit code 0", ""},
	"FAILED":        {jobs.StateFailed, "", "ended with another exit code than 0, or by a signal", ""},
	"CANCELLED":     {jobs.StateCancelled, "", "was cancelled", ""},
	"TIMEOUT":       {jobs.StateTimeout, jobs.ClassTime, "reached its time limit", "ask for more in [resources] time"},
	"OUT_OF_MEMORY": {jobs.StateOutOfMemory, jobs.ClassMemory, "or a process of it was killed for memory", "raise [resources] memory"},
	"NODE_FAIL":     {jobs.StateError, jobs.ClassNode, "lost its node: the node failed", ours},
	"BOOT_FAIL":     {jobs.StateError, jobs.ClassNode, "lost its node: the node did not boot", ours},
	"LAUNCH_FAILED": {jobs.StateError, jobs.ClassNode, "could not be launched on its node", ours},
	"RECONFIG_FAIL": {jobs.StateError, jobs.ClassNode, "lost its node: the node could not be reconfigured", ours},
	"PREEMPTED":     {jobs.StateError, jobs.ClassPreempted, "was preempted by another job", ours},
	"DEADLINE":      {jobs.StateError, jobs.ClassPolicy, "could not end before the deadline that was asked for", "name a later --deadline, or none"},
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
	m := states[w]
	st := jobs.Status{State: m.state, NativeState: w, Reason: reason, Class: m.class, Explanation: m.plain, Hint: m.help,
		Paused: w == "SUSPENDED" || w == "STOPPED", Ending: w == "COMPLETING"}
	st.Held = m.state == jobs.StatePending && strings.Contains(m.help, "scontrol release")
	if uid, ok := strings.CutPrefix(rest, "by "); ok && w == "CANCELLED" {
		st.By = strings.TrimSpace(uid)
		st.Reason = strings.TrimSpace(rest + " " + reason)
	}
	// Why a job waits counts while it does, and in one case after it: a request
	// that no node can satisfy ends as CANCELLED, or as FAILED. The same request
	// would fail again.
	if r, ok := reasonOf(reason); ok && (w == "PENDING" || (w == "CANCELLED" || w == "FAILED") && r.never && st.By == "") {
		if w == "PENDING" {
			st.Explanation, st.Hint, st.Held = "waits: "+r.plain, r.help, r.never
		} else {
			st.Explanation += ": " + r.plain
		}
		if w == "FAILED" {
			st.Class, st.Hint = jobs.ClassPolicy, r.help
		}
		if r.detail != "" {
			st.Explanation += " (" + r.detail + ")"
		}
	} else if w == "PENDING" && reason != "" {
		st.Explanation = fmt.Sprintf("waits: Slurm says %q", reason)
	}
	if st.State == jobs.StateError && reason == "" {
		st.Reason = "it " + st.Explanation
	}
	st.Hint = strings.ReplaceAll(st.Hint, "{id}", id)
	return st
}
