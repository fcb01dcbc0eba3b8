// Package batch finds the scheduler in one of whose jobs a process on a node
// runs: by the record of its job, or by its environment.
package batch

import (
	"context"
	"slices"
	"strings"
	"time"

	"berth/jobs"
	"berth/slurm/inside"
)

// Schedulers are those whose jobs the programs for the nodes know. Only tests
// change it.
var Schedulers = []jobs.NodeScheduler{inside.Slurm{}}

// Of returns the scheduler with this name; that of jobs without one on their
// nodes, as "local", answers nothing.
func Of(name string) jobs.NodeScheduler {
	for _, s := range Schedulers {
		if s.Name() == name {
			return s
		}
	}
	return none{}
}

// Here returns the scheduler and the job in which a process with this
// environment runs; outside of all the job's ID is "".
func Here(getenv func(string) string) (jobs.NodeScheduler, jobs.NodeJob) {
	for _, s := range Schedulers {
		if job, ok := s.Job(getenv); ok {
			return s, job
		}
	}
	return none{}, jobs.NodeJob{}
}

// Counted starts what on starts, and notes the programs of a scheduler.
func Counted(on jobs.Starter, s jobs.NodeScheduler, note func(program string)) jobs.Starter {
	return counted{on, s, note}
}

type counted struct {
	jobs.Starter
	in   jobs.NodeScheduler
	note func(string)
}

func (c counted) Start(ctx context.Context, cmd jobs.Cmd) (jobs.Process, error) {
	if len(cmd.Argv) > 0 && c.in.Program(cmd.Argv[0]) {
		c.note(cmd.Argv[0])
	}
	return c.Starter.Start(ctx, cmd)
}

// Stubs finds those that a task may use, by the name of one; nil is that there is none.
// They are all schedulers': a task need not know where it is.
func Stubs(name string) jobs.Stubs {
	for _, s := range Schedulers {
		if all := s.Stubs(); all != nil && slices.ContainsFunc(all.List(), func(s jobs.Stub) bool { return s.Name == name }) {
			return all
		}
	}
	return nil
}

// AllStubs are the programs of all of them.
func AllStubs() (out []jobs.Stub) {
	for _, s := range Schedulers {
		if all := s.Stubs(); all != nil {
			out = append(out, all.List()...)
		}
	}
	return out
}

// Passed are the variables of an environment that commands in a container get:
// which GPUs are theirs, and what their scheduler lets them see. The runner,
// every rank and the keeper of an allocation pass the same.
func Passed(environ []string) []string {
	var out []string
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if value != "" && (slices.Contains(jobs.Devices, name) ||
			slices.ContainsFunc(Schedulers, func(s jobs.NodeScheduler) bool { return s.Passed(name) })) {
			out = append(out, e)
		}
	}
	return out
}

// JobVariable reports whether a variable tells a process in which job it runs.
func JobVariable(name string) bool {
	return slices.ContainsFunc(Schedulers, func(s jobs.NodeScheduler) bool { return s.JobVariable(name) })
}

// clockSlack is how long after the start of a job, by the clock of its node, the
// time that the scheduler's controller calls its end is believed without asking:
// the clocks agree, then, and there was no long prolog.
const clockSlack = 10 * time.Second

// End is when the scheduler will end a job, by the clock of this process (with a
// monotonic reading), or zero. Where the job did not begin just now, or its
// environment does not tell, the scheduler is asked how much is left: a node's
// clock that is ahead costs no job its time.
func End(ctx context.Context, on jobs.Starter, s jobs.NodeScheduler, job jobs.NodeJob) time.Time {
	return end(ctx, on, s, job, time.Now)
}

func end(ctx context.Context, on jobs.Starter, s jobs.NodeScheduler, job jobs.NodeJob, now func() time.Time) time.Time {
	at := now()
	since := at.Sub(job.Began)
	if !job.Ends.IsZero() && !job.Began.IsZero() && since > -time.Second && since <= clockSlack {
		return at.Add(job.Ends.Sub(at))
	}
	if job.ID != "" {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if left, ok := s.Remaining(ctx, on, job.ID); ok {
			return now().Add(left)
		}
	}
	switch at = now(); {
	case job.Ends.IsZero():
		return time.Time{}
	case !job.Began.IsZero() && since < 0: // a clock that is behind: there is no more than all of it
		return at.Add(job.Ends.Sub(job.Began))
	}
	return at.Add(job.Ends.Sub(at)) // it may have begun so long ago
}

// EndNow asks the scheduler when it will end a job: the limit of one that runs
// may have been changed, or the job suspended. Zero is that it does not say.
func EndNow(ctx context.Context, on jobs.Starter, s jobs.NodeScheduler, id string) time.Time {
	if left, ok := s.Remaining(ctx, on, id); ok {
		return time.Now().Add(left)
	}
	return time.Time{}
}

// none is the place of a scheduler where there is none.
type none struct{}

func (none) Name() string                                                          { return "" }
func (none) Job(func(string) string) (jobs.NodeJob, bool)                          { return jobs.NodeJob{}, false }
func (none) Remaining(context.Context, jobs.Starter, string) (time.Duration, bool) { return 0, false }
func (none) KillWait(context.Context, jobs.Starter) time.Duration                  { return 0 }
func (none) Version(context.Context, jobs.Starter) string                          { return "" }
func (none) Cancel(context.Context, jobs.Starter, []string) error                  { return nil }
func (none) Program(string) bool                                                   { return false }
func (none) Passed(string) bool                                                    { return false }
func (none) JobVariable(string) bool                                               { return false }
func (none) HasCgroup(string, string) bool                                         { return false }
func (none) EndHint(string) string                                                 { return "" }
func (none) Ranks(jobs.Resources, jobs.SlurmOptions, []string) []string            { return nil }
func (none) Step(string, jobs.Resources, jobs.SlurmOptions, []string) []string     { return nil }
func (none) EndStep(context.Context, jobs.Starter, string, string) error           { return nil }
func (none) RankEnviron(environ []string) []string                                 { return environ }
func (none) RankPassed(jobs.SlurmOptions, []string) []string                       { return nil }
func (none) RankEnded(string) (func(int) bool, string, bool)                       { return nil, "", false }
func (none) Stubs() jobs.Stubs                                                     { return nil }
