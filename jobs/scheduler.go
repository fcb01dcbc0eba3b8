package jobs

import (
	"context"
	"time"
)

// SchedulerLog is the file in an attempt's directory that takes what the job
// script writes before the runner has opened its own logs, and the scheduler's
// remarks.
const SchedulerLog = "scheduler.log"

// Health is what [Scheduler.Check] and [Backend.Check] find.
type Health string

// The three answers of a check.
const (
	Undetected Health = "undetected" // its programs are not here
	Unhealthy  Health = "unhealthy"  // they are, and do not work
	Healthy    Health = "healthy"
)

// Checked is the answer of a check: a sentence for people and what to do.
type Checked struct {
	Health  Health
	Reason  string
	Hint    string
	Version string
}

// Launch is what a scheduler is asked to start. Argv is opaque to it.
type Launch struct {
	Attempt   string // the attempt's id
	Name      string // [JobName], unique to the attempt
	Dir       string // the attempt's directory, seen by the nodes
	Argv      []string
	Comment   []string // lines for people at the head of the script
	Resources Resources
	Slurm     SlurmOptions
	Profile   Profile
	Identity  Identity
}

// Identity is whom a job runs as; the script writes it out because batch jobs
// may start with an empty environment.
type Identity struct {
	User  string
	Home  string
	Shell string
}

// Status is a scheduler's word about one of its jobs.
type Status struct {
	State  State  // Pending or Running, or a final state; "" when it does not know the job
	Word   string // the scheduler's own word, such as PENDING or NODE_FAIL
	Reason string // why it waits or ended, in the scheduler's words
	Hint   string // what a person can do about it, or ""
	Node   string
	Start  time.Time // expected or real; zero when unknown
	Code   int
	Signal int
}

// Scheduler decides when and where an attempt starts. Implementations are safe
// for concurrent use. An error never means that a job failed: only that the
// scheduler could not be asked or said no.
type Scheduler interface {
	// Name is the word of the configuration: "slurm", "local".
	Name() string
	// Check tells whether the scheduler can be used from here.
	Check(ctx context.Context) Checked
	// Render returns the job script. It is pure: no scheduler is asked.
	Render(l Launch) (string, error)
	// Submit hands over an attempt whose script stands at scriptPath. It is
	// called once per attempt. KindRejected means that the scheduler said no
	// and has nothing; KindUnclear that it may have it: call Find before
	// anything else.
	Submit(ctx context.Context, l Launch, scriptPath string) (Handle, error)
	// Find looks attempts up by [JobName]. A name missing from the answer is
	// not known to the scheduler now.
	Find(ctx context.Context, names []string) (map[string]Handle, error)
	// Status asks about many jobs in one query, whatever their number. The
	// answer is keyed by [Handle.Name]; a name missing from it is not known.
	Status(ctx context.Context, handles []Handle) (map[string]Status, error)
	// Cancel asks for the end of jobs. It is idempotent, and an unknown or
	// ended job is no error.
	Cancel(ctx context.Context, handles []Handle) error
}
