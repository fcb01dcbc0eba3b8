package jobs

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
	StateCancelled   State = "cancelled"     // somebody asked for its end
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

// StateOf folds a record into the job's state. The runner's own exit record
// beats every other word.
func StateOf(r *Record) State {
	a := r.Current()
	switch {
	case a == nil:
		return StateSubmitting
	case a.Exit != nil:
		return a.Exit.State
	case a.Verdict != nil:
		return a.Verdict.State
	case a.Claim != nil:
		return StateRunning
	case a.Submitted != nil:
		return StatePending
	}
	return StateSubmitting
}

// CodeOfRecord is what `berth wait` exits with for this record.
func CodeOfRecord(r *Record) int {
	a := r.Current()
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
