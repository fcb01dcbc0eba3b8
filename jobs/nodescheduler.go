package jobs

import (
	"context"
	"time"
)

// NodeJob is the job of a scheduler in which a process runs, as its environment
// has it. The zero value is none.
type NodeJob struct {
	ID      string
	Name    string
	Node    string // the scheduler's name for this node
	Rank    string // the number of this process among those of [NodeScheduler.Ranks]; "" is none of them
	Restart int    // how often the scheduler has started the job again under its id
	// Began and Ends are by the controller's clock; zero is not told.
	Began, Ends time.Time
}

// NodeScheduler is a scheduler as a process in one of its jobs sees it, on a
// compute node. Its methods ask the scheduler's programs where the environment
// does not tell, and each bounds how long that may take.
type NodeScheduler interface {
	// Name is the word of the configuration, as of [Scheduler].
	Name() string
	// Job reads the environment of a process; ok is false outside of a job.
	Job(getenv func(string) string) (job NodeJob, ok bool)
	// Remaining asks how much time a job has left; ok is false where the answer is
	// none. The limit of a job may change while it runs.
	Remaining(ctx context.Context, on Starter, id string) (left time.Duration, ok bool)
	// KillWait is the time between TERM and KILL at the end of a job.
	KillWait(ctx context.Context, on Starter) time.Duration
	// Version is the scheduler's, or "".
	Version(ctx context.Context, on Starter) string
	// Cancel ends jobs by their ids.
	Cancel(ctx context.Context, on Starter, ids []string) error
	// Program reports whether a command is one of the scheduler's, to be counted.
	Program(name string) bool
	// Passed tells whether commands in a container get a variable of the job's.
	Passed(name string) bool
	// JobVariable reports whether Job, or a program of the scheduler that is started
	// from here, reads a variable.
	JobVariable(name string) bool
	// HasCgroup tells whether a cgroup, by its path, is that of a job.
	HasCgroup(path, id string) bool
	// EndHint tells a person how to find out who has ended a job.
	EndHint(id string) string
	// Ranks returns the command line that, in a job with these resources, runs argv
	// once in each of its tasks; nil is that the scheduler has no such command. It is
	// pure. That command gives what it reads to all of them, and prints each piece of
	// their output on a line that begins with the number of the task and ": ".
	Ranks(r Resources, o SlurmOptions, argv []string) []string
	// Step returns the command line that, in a job, runs argv once in each of r.Tasks
	// tasks of a step with this name, beside other steps; nil is that the scheduler has no
	// such command. Each task has r.CPUs, and all of them have r.Memory; r.GPUs are those
	// of the job, of which they take none. Their output comes
	// as they write it. The first failure ends the others, and gives the exit code. It is pure.
	Step(name string, r Resources, o SlurmOptions, argv []string) []string
	// EndStep ends the steps of a job that have this name, if some still run. One may
	// outlive the command of Step that was killed.
	EndStep(ctx context.Context, on Starter, id, name string) error
	// RankEnviron is the environment for the command of Ranks or Step, from that of the job.
	RankEnviron(environ []string) []string
	// RankPassed are further variables of a rank's for its task.
	RankPassed(o SlurmOptions, environ []string) []string
	// RankEnded reads a line that this command prints on its standard error; ok is
	// that it says of some ranks how they ended, other than with 0.
	RankEnded(line string) (among func(rank int) bool, how string, ok bool)
	// Stubs are programs of its that a task may use to have jobs submitted; nil is none.
	Stubs() Stubs
}
