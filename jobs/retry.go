package jobs

import "time"

// Class says what kind of failure ended an attempt, and so what may repair it.
type Class string

// The classes.
const (
	ClassNone      Class = ""               // none: it succeeded
	ClassTask      Class = "task"           // the task's own failure: a second try fails as well, for all that is known
	ClassMemory    Class = "memory"         // more memory
	ClassTime      Class = "time"           // more time
	ClassNode      Class = "node"           // another node
	ClassPreempted Class = "preempted"      // nothing: it had to make room
	ClassInfra     Class = "infrastructure" // a moment later, perhaps elsewhere
	ClassPolicy    Class = "policy"         // only the user: a limit, a refusal, a place that is not available
	ClassStop      Class = "stop"           // its end was requested
	// ClassWaiting says that a job it waits for ([Spec.After]) has not ended. It is
	// submitted again behind that one, and no attempt is counted.
	ClassWaiting Class = "waiting"
	// ClassEnded says that the scheduler ended it; only the scheduler's word tells why.
	ClassEnded Class = "ended"
)

// Retry is how often a job may be tried again, and for what. It is settled at
// submit; a job without one has one attempt.
type Retry struct {
	// Attempts is how many there may be; those that a preemption ended, or that
	// found out that they have to wait, are not counted, nor are those that
	// [Resume] counts. 0 is of a job that waits
	// for others and is not tried again.
	Attempts int `json:"attempts"`
	// How many more attempts each class may cost.
	Task   int `json:"task"`
	Memory int `json:"memory"`
	Time   int `json:"time"`
	Node   int `json:"node"`
	Infra  int `json:"infrastructure"`
	// Codes are exit codes of the task after which it is tried again even
	// though it is its own failure; nil with Task set is every code.
	Codes []int `json:"codes,omitempty"`
	// CoreHours bounds what all attempts together may use; 0 is no bound.
	CoreHours float64 `json:"core_hours,omitempty"`
	// MaxMemory and MaxTime bound what an attempt may ask for; 0 is no bound.
	MaxMemory Bytes         `json:"max_memory_bytes,omitempty"`
	MaxTime   time.Duration `json:"max_time_ns,omitempty"`
	// Most is what the site gives to a job at most, as far as that was known at
	// submit.
	Most Most `json:"most,omitzero"`
}

// DefaultRetry returns the policy of a job that sets none. Failures of the site
// are retried, and so is a task that exceeded its memory, with more of it. A task
// that failed by itself or reached its time limit is not retried.
func DefaultRetry() *Retry {
	return &Retry{Attempts: 6, Memory: 2, Node: 2, Infra: 3}
}

// credit is how many attempts the class may cost.
func (p *Retry) credit(c Class) int {
	switch c {
	case ClassTask:
		return p.Task
	case ClassMemory:
		return p.Memory
	case ClassTime:
		return p.Time
	case ClassNode:
		return p.Node
	case ClassInfra:
		return p.Infra
	case ClassPreempted:
		return MostAttempts
	case ClassNone, ClassPolicy, ClassStop, ClassWaiting, ClassEnded:
	}
	return 0
}

// Again tells whether an attempt that has failed may be tried again.
func (p *Retry) Again() bool { return p != nil && p.Attempts > 0 }

const (
	// MostAttempts bounds the attempts of a job whatever ended them, but for
	// those that only found out that they have to wait.
	MostAttempts = 100
	// MostWaits bounds these.
	MostWaits = 800
)

// Verb is what a [Decision] does.
type Verb string

// What can follow an attempt.
const (
	// VerbAccept makes the attempt's result the job's.
	VerbAccept Verb = "accept"
	// VerbRetry begins another attempt.
	VerbRetry Verb = "retry"
)

// Decision is decision.json of an attempt: what follows it. Whoever writes it
// first decides, so that at most one attempt of a job is accepted: the next one
// exists only after a decision to retry.
type Decision struct {
	Version int    `json:"version"`
	Attempt string `json:"attempt"`
	Verb    Verb   `json:"verb"`
	Class   Class  `json:"class,omitempty"`
	// State and Code are those of the job when it is accepted.
	State State `json:"state,omitempty"`
	Code  int   `json:"code"`
	// Reason says why in a sentence; Evidence what it follows from.
	Reason   string   `json:"reason"`
	Evidence []string `json:"evidence,omitempty"`
	// Word is the scheduler's about the attempt, when it was asked, and WordBy who
	// cancelled it there, when it said so.
	Word   string `json:"scheduler_state,omitempty"`
	WordBy string `json:"cancelled_by,omitempty"`
	// Change is what the next attempt has different from this one.
	Change Change `json:"change,omitzero"`
	// Exit is of a result that its own runner accepts: the end that this is about
	// to record. Whoever finds the runner gone records it in its place.
	Exit *ExitRecord `json:"exit,omitempty"`
	By   string      `json:"by"`
	Time time.Time   `json:"time"`
}

// Change is what an attempt asks for in place of what its job does. The zero
// value changes nothing.
type Change struct {
	Memory  Bytes         `json:"memory_bytes,omitempty"`
	Time    time.Duration `json:"time_ns,omitempty"`
	Exclude []string      `json:"exclude,omitempty"` // nodes
	// NotBefore is when it may begin.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Resume is where it goes on; nil is from the job's base.
	Resume *Point `json:"resume,omitempty"`
}

// Resources are what an attempt asks for, of what its job does.
func (c Change) Resources(r Resources) Resources {
	if c.Memory != 0 {
		r.Memory = c.Memory
	}
	if c.Time != 0 {
		r.Time = c.Time
	}
	return r
}
