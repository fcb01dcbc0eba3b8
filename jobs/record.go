package jobs

import (
	"encoding/json"
	"time"
)

// Handle is how a scheduler's job is found again by a later process. It is
// plain versioned JSON; Opaque is the scheduler's own.
type Handle struct {
	Version   int             `json:"version"`
	Scheduler string          `json:"scheduler"`
	NativeID  string          `json:"native_id"` // Slurm's job id; the local queue's entry
	Name      string          `json:"name"`      // [JobName]
	Cluster   string          `json:"cluster,omitempty"`
	Opaque    json.RawMessage `json:"opaque,omitempty"`
}

// Record is all that is known of a job, as read from the ledger.
type Record struct {
	Dir      string // of the job; not stored
	Spec     Spec
	Cancel   *Cancel
	Attempts []Attempt // in order of their numbers; the last is the current one
}

// Attempt is one execution of a job.
type Attempt struct {
	N         int
	Dir       string
	Info      AttemptInfo
	Submitted *Submitted
	Claim     *Claim
	Beat      time.Time // when the runner last wrote its beat; zero is never
	Exit      *ExitRecord
	Verdict   *Verdict
	Taken     *Taken
}

// AttemptInfo is attempt.json.
type AttemptInfo struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Number  int       `json:"number"`
	Name    string    `json:"name"` // [JobName]
	Created time.Time `json:"created"`
}

// Submitted is submitted.json: the scheduler took the attempt.
type Submitted struct {
	Version int       `json:"version"`
	Handle  Handle    `json:"handle"`
	Time    time.Time `json:"time"`
}

// Claim is claim.json: a runner began the attempt. The key is the attempt, the
// scheduler's id and the restart count; who finds the file made by another
// touches nothing.
type Claim struct {
	Version  int       `json:"version"`
	Attempt  string    `json:"attempt"`
	NativeID string    `json:"native_id,omitempty"`
	Restart  int       `json:"restart,omitempty"` // SLURM_RESTART_COUNT
	Host     string    `json:"host"`
	BootID   string    `json:"boot_id,omitempty"`
	PID      int       `json:"pid"`
	Time     time.Time `json:"time"`
}

// Cancel is the file "cancel" of a job: somebody asked for its end.
type Cancel struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	By      string    `json:"by"`
}

// Verdict is verdict.json: what a client concluded of an attempt that left no
// exit record, from the scheduler's final word.
type Verdict struct {
	Version int       `json:"version"`
	State   State     `json:"state"`
	Word    string    `json:"word,omitempty"` // the scheduler's own, such as NODE_FAIL
	Reason  string    `json:"reason,omitempty"`
	Hint    string    `json:"hint,omitempty"`
	Code    int       `json:"code,omitempty"` // what `berth wait` exits with; 0 follows from the state
	Time    time.Time `json:"time"`
}

// Taken is taken.json: the branch was brought into the user's repository by a
// client, because the runner could not.
type Taken struct {
	Version int       `json:"version"`
	Branch  string    `json:"branch"`
	Commit  string    `json:"commit"`
	Time    time.Time `json:"time"`
}

// Current returns the last attempt, or nil when there is none.
func (r *Record) Current() *Attempt {
	if len(r.Attempts) == 0 {
		return nil
	}
	return &r.Attempts[len(r.Attempts)-1]
}
