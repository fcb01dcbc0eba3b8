package jobs

import "time"

// What a schedule does when its last run still goes on at its next time.
const (
	OverlapAllow   = "allow"   // both run
	OverlapForbid  = "forbid"  // the new one is left out
	OverlapReplace = "replace" // the old one is cancelled
)

// Schedule says when a task is submitted, once or again and again. It is recorded once
// and never changes. One of Cron, Every and At is set.
type Schedule struct {
	Version int           `json:"version"`
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	Cron    string        `json:"cron,omitempty"`     // five fields, or @daily and its like
	Every   time.Duration `json:"every_ns,omitempty"` // counted from Created
	At      time.Time     `json:"at,omitzero"`
	Zone    string        `json:"zone"`             // IANA name, in which Cron is read
	Overlap string        `json:"overlap"`          // see [OverlapAllow]
	Repeat  int           `json:"repeat,omitempty"` // it ends after so many runs; 0 is never
	Words   []string      `json:"words"`            // of "berth submit": flags, and a task file or a command
	Dir     string        `json:"dir"`              // where these words are read
	Created time.Time     `json:"created"`
}

// ScheduleRun is what was decided on one due time of a schedule, and what came of it.
type ScheduleRun struct {
	Version int       `json:"version"`
	Name    string    `json:"name"`             // of the run: its due time in UTC; its file is called so
	Due     time.Time `json:"due"`              // when it was to be submitted
	Manual  bool      `json:"manual,omitempty"` // a person asked for it
	Number  int       `json:"number"`           // 1 is the schedule's first
	Missed  int       `json:"missed,omitempty"` // earlier due times that passed without a look, for which this run stands
	Skip    string    `json:"skip,omitempty"`   // why nothing is submitted
	Replace string    `json:"replace,omitempty"`
	Decided time.Time `json:"decided"`
	Host    string    `json:"host"`
	// Outcome is nil until the run was submitted, or cannot be.
	Outcome *ScheduleOutcome `json:"outcome,omitempty"`
}

// ScheduleOutcome is what came of the submission of a run.
type ScheduleOutcome struct {
	Version int       `json:"version"`
	Job     string    `json:"job,omitempty"`
	Error   string    `json:"error,omitempty"` // of a submission that is not tried again
	Hint    string    `json:"hint,omitempty"`
	Time    time.Time `json:"time"`
}
