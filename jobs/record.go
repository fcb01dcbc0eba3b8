package jobs

import (
	"encoding/json"
	"slices"
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
	Elements  int             `json:"elements,omitempty"` // as of [Launch]: the handle is of all, and they are known by its name
	Opaque    json.RawMessage `json:"opaque,omitempty"`
}

// Record is all that is known of a job, as read from the ledger.
type Record struct {
	Dir      string // of the job; not stored
	Spec     Spec
	Cancel   *Cancel
	Attempts []Attempt // in order of their numbers; the last is the current one
	// Sent is what another user has sent for a review: there is no job here then, and
	// nothing but a review can be made of it. Nil is a job.
	Sent *ReviewSent
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
	Decision  *Decision
	Taken     *Taken
	// Undelivered is the last failure to bring the branch in; nil is none.
	Undelivered *Undelivered
	// Collected is what a client made of the kept work tree; nil is nothing.
	Collected *Collected
	// Checkpoint is where another attempt can go on; nil is nowhere.
	Checkpoint *Checkpoint
	// Reaper is the job that begins the next attempt after the scheduler has ended
	// this one, even if no client is logged in.
	Reaper *Submitted
	// Standby are the jobs that wait behind the attempt to be the next one; nil is none.
	Standby *Standby
	// Unfollowed says what could not be submitted; see [Record.Stuck].
	Unfollowed *Unfollowed
}

// Unfollowed is unfollowed.json: what must follow an attempt could not be
// submitted, so the user must act. A later failure replaces the file.
type Unfollowed struct {
	Version int       `json:"version"`
	Reason  string    `json:"reason"`
	Hint    string    `json:"hint,omitempty"`
	Time    time.Time `json:"time"`
}

// AttemptInfo is attempt.json.
type AttemptInfo struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Number  int       `json:"number"`
	Name    string    `json:"name"` // [JobName]
	Created time.Time `json:"created"`
	// Change is what it asks for in place of what the job does.
	Change Change `json:"change,omitzero"`
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
	Restart  int       `json:"restart,omitempty"` // see NodeJob.Restart
	Host     string    `json:"host"`
	BootID   string    `json:"boot_id,omitempty"`
	PID      int       `json:"pid"`
	Start    string    `json:"start,omitempty"` // when the process began, by which it is told from a later one
	Node     string    `json:"node,omitempty"`  // see NodeJob.Node
	Time     time.Time `json:"time"`
}

// Inside is inside.json: the place that the task's command began in, for others
// who come into it later. It holds no value that was passed on by name.
type Inside struct {
	Version int      `json:"version"`
	Env     []string `json:"env,omitempty"`  // of the container, NAME=VALUE
	Task    []string `json:"task,omitempty"` // what the command had beside it
	Home    string   `json:"home"`
	Dir     string   `json:"dir"` // where the command began
	// The process that has opened the container, and where it is; Node is the
	// name in Slurm.
	Host   string `json:"host"`
	BootID string `json:"boot_id"`
	PID    int    `json:"pid"`
	Start  string `json:"start"`
	Node   string `json:"node,omitempty"`
	// Image is where the container's image is run from there; nil without one.
	Image *ImageUse `json:"image,omitempty"`
	// Room is that commands run in a room below the container.
	Room bool `json:"room,omitempty"`
}

// Cancel is the file "cancel" of a job: its cancellation was requested.
type Cancel struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	By      string    `json:"by"`
	Host    string    `json:"host,omitempty"` // where
}

// Verdict is verdict.json: what a client concluded of an attempt that left no
// exit record, from the scheduler's final word.
type Verdict struct {
	Version int       `json:"version"`
	State   State     `json:"state"`
	Class   Class     `json:"class,omitempty"` // "" follows from the state
	Word    string    `json:"word,omitempty"`  // the scheduler's own, such as NODE_FAIL
	By      string    `json:"by,omitempty"`    // who cancelled it there, when the scheduler says
	Reason  string    `json:"reason,omitempty"`
	Hint    string    `json:"hint,omitempty"`
	Code    int       `json:"code,omitempty"` // what `berth wait` exits with; 0 follows from the state
	Time    time.Time `json:"time"`
}

// Taken is taken.json: the branch was brought into the user's repository by a
// client, because the runner could not. With several workspaces it is of all: each
// repository whose part has changed has the branch, and the commit is of the first.
type Taken struct {
	Version int       `json:"version"`
	Branch  string    `json:"branch"`
	Commit  string    `json:"commit"`
	Time    time.Time `json:"time"`
}

// Undelivered is undelivered.json: a client could not bring the branch in, in a
// way that costs something each time. The last word counts.
type Undelivered struct {
	Version int       `json:"version"`
	Tries   int       `json:"tries"`
	Reason  string    `json:"reason"`
	Time    time.Time `json:"time"`
	// Next is when whoever looks at the job tries again.
	Next time.Time `json:"next"`
}

// Due tells whether it is time to try again; nil is.
func (u *Undelivered) Due(now time.Time) bool {
	// A time far ahead is a wrong clock.
	return u == nil || !now.Before(u.Next) || u.Next.Sub(now) > maxBackOff
}

const maxBackOff = time.Hour

// Again is the record of another failure: each waits twice as long as the last.
func (u *Undelivered) Again(now time.Time, reason string) Undelivered {
	n := Undelivered{Version: 1, Tries: 1, Reason: reason, Time: now}
	if u != nil {
		n.Tries = u.Tries + 1
	}
	n.Next = now.Add(min(10*time.Second<<min(n.Tries-1, 10), maxBackOff))
	return n
}

// Collected is collected.json: a client made the result of the work tree that
// was kept, because the runner had not.
type Collected struct {
	Version int       `json:"version"`
	Result  Result    `json:"result"`
	Time    time.Time `json:"time"`
}

// Result is what the attempt changed; nil is that this was not collected.
func (a *Attempt) Result() *Result {
	switch {
	case a.Exit != nil && a.Exit.Result != nil:
		return a.Exit.Result
	case a.Collected != nil:
		return &a.Collected.Result
	}
	return nil
}

// Current returns the last attempt, or nil when there is none.
func (r *Record) Current() *Attempt {
	if len(r.Attempts) == 0 {
		return nil
	}
	return &r.Attempts[len(r.Attempts)-1]
}

// Stuck is what could not be submitted and is still missing, or nil: once
// another attempt has begun, or the job has ended, it is of no interest.
func (r *Record) Stuck() *Unfollowed {
	if a := r.Current(); a != nil && a.Unfollowed != nil && !StateOf(r).Final() {
		return a.Unfollowed
	}
	return nil
}

// BranchHere tells whether the branch of a job's result stands in the user's
// repository, with several workspaces in each one that has changed. A runner on a cluster that is reached by ssh cannot have put it
// there.
func (r *Record) BranchHere() bool {
	a := r.Current()
	if a.Taken != nil { // which is of all
		return true
	}
	if a.Exit == nil || a.Exit.Result == nil || r.Spec.Login != nil {
		return false
	}
	return a.Exit.Result.Changed() && !slices.ContainsFunc(a.Exit.Result.All(), func(w *Result) bool { return w.Commit != "" && !w.Taken })
}

// BranchMissing tells whether the current attempt has left changes that are not
// in the user's repository, of any workspace.
func (r *Record) BranchMissing() bool {
	a := r.Current()
	if a == nil || a.Result() == nil {
		return false
	}
	return a.Result().Changed() && r.Spec.Workspace != nil && !r.BranchHere()
}
