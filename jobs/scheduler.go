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
	// After are jobs that must have ended before it begins, Client the program
	// that looks after them, or "". Behind are those of them that this
	// scheduler has: it holds the attempt back until they have ended, however.
	// Whether it may begin then is told by its runner.
	After  []After
	Behind []Handle
	Client string
	// Wait is how long the scheduler holds it back at least; 0 is not at all.
	Wait time.Duration
	// Exclude are nodes on which it is not to run.
	Exclude []string
	// Aside says that it is a small job that looks after another one, with that
	// one's options: those count without which the site would not take it, or
	// would charge it to another account.
	Aside bool
	// Requeue lets the scheduler start the attempt again by itself, after a
	// preemption or a lost node: it is the next attempt then.
	Requeue bool
	// Warn is how long before the end of its time the scheduler tells the job,
	// with USR2 to its batch process; 0 is not at all.
	Warn time.Duration
	// Env are further NAME=VALUE of the script's.
	Env []string
	// Log is the file in Dir that takes what the script writes; "" is
	// [SchedulerLog].
	Log string
	// Elements are jobs that are alike, started by one call, of which AtOnce run at a
	// time; 0 of these is all of them. 0 elements are one job that stands alone. Each
	// has a log of its own. Only a [Cluster] has them, of the most that
	// [Cluster.Room] tells.
	Elements, AtOnce int
}

// Room is how many jobs a user may still submit.
type Room struct {
	Elements int    // of one launch; 0 is no bound that is known
	Jobs     int    // beside those that have not ended, where Why is not ""
	Why      string // what bounds Jobs
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
	State       State  // Pending or Running, or a final state; "" when it does not know the job
	NativeState string // the scheduler's own word, such as PENDING or NODE_FAIL
	Reason      string // why it waits or ended, in the scheduler's words
	Explanation string // the same in plain words, after "it "; "" where the scheduler's own say enough
	Hint        string // what a person can do about it, or ""
	Class       Class  // of a final word that tells by itself what kind of trouble it was; else ""
	By          string // who cancelled it, a name or a number; "" is not known
	Held        bool   // it waits, and does not start until the user or the site acts
	Paused      bool   // it runs, and nothing in it goes on: it is suspended
	Ending      bool   // it runs, and is about to end
	Elements    int    // of a handle of several: how many have not ended; those that wait may count as one
	Node        string
	Start       time.Time // expected or real; zero when unknown
	Code        int
	Signal      int
	AsOf        time.Time // when the scheduler said so; zero is just now
}

// Most is what a job can ask for at most where it goes; 0 is no bound, or none
// that is known.
type Most struct {
	Memory    Bytes         `json:"memory_bytes,omitempty"` // on a node
	MemoryWhy string        `json:"memory_why,omitempty"`   // what bounds it
	Time      time.Duration `json:"time_ns,omitempty"`
	TimeWhy   string        `json:"time_why,omitempty"`
}

// Forecast is when a job would start if it were submitted now, as it is or in
// another way.
type Forecast struct {
	What    string    `json:"what"`              // how: "as it is", "with 1h0m0s"
	Start   time.Time `json:"start,omitzero"`    // zero with Trouble
	Trouble string    `json:"trouble,omitempty"` // why it would not start
}

// Listed is a job of a scheduler that has a name of berth's.
type Listed struct {
	Handle Handle
	Dir    string // that it was submitted for
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

// Cluster is a scheduler whose jobs run on nodes of its choice, where they can
// have several processes, and be joined by others.
type Cluster interface {
	Scheduler
	// Step returns the command that runs argv beside what already runs in a job,
	// on one of its nodes ("" is the first one), with its own standard streams.
	Step(h Handle, node string, argv []string) Cmd
	// StepError explains why the command of Step ended before argv said anything,
	// by its last words; again is that it may work in a moment.
	StepError(h Handle, said string) (kind Kind, hint string, again bool)
	// Show is the command by which a person looks at a job.
	Show(h Handle) string
	// Most returns what a job with these options can ask for at most.
	Most(ctx context.Context, o SlurmOptions) (Most, error)
	// Partitions returns the names of the partitions that are known, in no order, and asks
	// nothing. It is for completion: an old answer will do.
	Partitions() []string
	// Room returns how many elements a launch of this user's may have, and how many
	// more jobs.
	Room(ctx context.Context, o SlurmOptions, user string) (Room, error)
	// Forecast tries a job that waits, as st says, in a few ways without submitting
	// it, first as it is. It tries nothing where the answer would be of no use: a
	// job that is held, or waits for another.
	Forecast(ctx context.Context, st Status, scriptPath string, r Resources, o SlurmOptions) ([]Forecast, error)
	// List returns the user's jobs that have not ended and have a name of berth's,
	// of this state directory and of others.
	List(ctx context.Context) ([]Listed, error)
}

// patience is how old an answer may be; its zero value is also the key of a context.
type patience int

const (
	unmarked patience = iota
	patient
	looking
	urgent
)

// WithPatience marks the queries of a caller that polls: a scheduler may then
// answer with a status that is up to a minute old, see [Status.AsOf].
func WithPatience(ctx context.Context) context.Context {
	return context.WithValue(ctx, unmarked, patient)
}

// WithLook marks the queries of a caller that only looks, unless they are marked already:
// a scheduler may then answer with a status that is as old as the least time between two
// questions on its site.
func WithLook(ctx context.Context) context.Context {
	if ctx.Value(unmarked) != nil {
		return ctx
	}
	return context.WithValue(ctx, unmarked, looking)
}

// WithUrgency marks the queries of a caller that has seen a change: cached
// answers of the scheduler do not count.
func WithUrgency(ctx context.Context) context.Context {
	return context.WithValue(ctx, unmarked, urgent)
}

// Patience returns how the queries of ctx are marked; without a mark all are false.
func Patience(ctx context.Context) (polls, looks, now bool) {
	p, _ := ctx.Value(unmarked).(patience)
	return p == patient, p == looking, p == urgent
}
