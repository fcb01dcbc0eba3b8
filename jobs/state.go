package jobs

import "time"

// State is where a job or an attempt stands.
type State string

// The states, in the order a job passes them. The ones from Completed on are
// final.
const (
	StateSubmitting  State = "submitting"    // the intent is recorded; no scheduler has confirmed it
	StatePending     State = "pending"       // a scheduler has it; it waits
	StateRunning     State = "running"       // a runner has claimed it
	StateCompleted   State = "completed"     // the command succeeded, and so did every done command
	StateFailed      State = "failed"        // the command or a done command did not
	StateCancelled   State = "cancelled"     // its end was requested
	StateTimeout     State = "timeout"       // its time limit passed
	StateOutOfMemory State = "out_of_memory" // the kernel killed the command for memory
	StateError       State = "error"         // berth or the site failed, not the task
	StateLost        State = "lost"          // it ended and left no word
)

// Final tells whether nothing more will happen by itself.
func (s State) Final() bool {
	switch s {
	case StateSubmitting, StatePending, StateRunning:
		return false
	case StateCompleted, StateFailed, StateCancelled, StateTimeout, StateOutOfMemory, StateError, StateLost:
		return true
	}
	return false
}

// StateOf computes the job's state from its record. The runner's own exit record
// takes precedence over every other source, and an accepted result over what came
// after it. A job whose retry is due is pending. A success is accepted before the
// result is committed, so it counts only when the attempt's exit record exists,
// too: the runner may have failed to commit. If the runner was killed in between,
// the job stays running until a client completes the attempt, see
// [Attempt.Unfinished].
func StateOf(r *Record) State {
	a := r.Current()
	if a == nil {
		return StateSubmitting
	}
	state := StateOfAttempt(a)
	if !state.Final() || r.Spec.Retry == nil {
		return state
	}
	d := a.Decision
	if d == nil {
		step := Next(r, nil, time.Time{})
		if step.Do != DoDecide || step.Decision.Verb == VerbRetry {
			return StatePending
		}
		return state
	}
	if d.Verb == VerbRetry {
		return StatePending
	}
	if d.State == StateCompleted {
		return state
	}
	return d.State
}

// AtRest reports whether no client has anything left to do for a job: it has
// ended, what follows is decided, its changes are in the repository. The index of
// listings stores the answer; a change of its meaning needs a new index, see
// indexHead in package store.
func AtRest(r *Record) bool {
	return StateOf(r).Final() && Next(r, nil, time.Time{}).Do == DoNothing && !r.BranchMissing()
}

// StateOfAttempt computes the state of one attempt.
func StateOfAttempt(a *Attempt) State {
	switch {
	case a.Exit != nil:
		return a.Exit.State
	case a.Verdict != nil && !a.Unfinished():
		return a.Verdict.State
	case a.Claim != nil, a.Unfinished():
		return StateRunning
	case a.Submitted != nil:
		return StatePending
	}
	return StateSubmitting
}

// CodeOfRecord is what `berth wait` exits with for this record.
func CodeOfRecord(r *Record) int {
	a := r.Current()
	if a != nil && a.Decision != nil && a.Decision.Verb == VerbAccept && a.Decision.Code != 0 {
		return a.Decision.Code
	}
	if r.Spec.Retry != nil && !StateOf(r).Final() {
		return CodePending
	}
	if a != nil && a.Exit != nil {
		return a.Exit.Code
	}
	if a != nil && a.Verdict != nil && a.Verdict.Code != 0 {
		return a.Verdict.Code
	}
	switch StateOf(r) {
	case StateCompleted:
		return CodeOK
	case StateFailed, StateOutOfMemory:
		return CodeTaskFailed
	case StateCancelled:
		return CodeInterrupted
	case StateTimeout:
		return CodeTimeout
	case StateError, StateLost:
		return CodeInfra
	case StateSubmitting, StatePending, StateRunning:
	}
	return CodePending
}
