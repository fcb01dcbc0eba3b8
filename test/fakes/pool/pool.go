//go:build linux

package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
)

// Name is the scheduler's.
const Name = "pool"

// Pool is the scheduler. It is safe for concurrent use.
type Pool struct {
	yard    yard
	program string // whose main is [Main]
}

var _ jobs.Cluster = (*Pool)(nil)

// New returns the pool of a yard, whose programs are those of a binary.
func New(dir, program string) *Pool { return &Pool{yard: yard(dir), program: program} }

// Name implements [jobs.Scheduler].
func (*Pool) Name() string { return Name }

// Check implements [jobs.Scheduler].
func (p *Pool) Check(context.Context) jobs.Checked {
	s, err := p.yard.site()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return jobs.Checked{Health: jobs.Undetected, Reason: "there is no pool in " + string(p.yard), Hint: "make one"}
	case err != nil:
		return jobs.Checked{Health: jobs.Unhealthy, Reason: "the pool cannot be read: " + err.Error(), Hint: "look at " + string(p.yard)}
	}
	return jobs.Checked{Health: jobs.Healthy, Reason: fmt.Sprintf("a pool of %d nodes", len(s.Nodes)), Version: "1"}
}

// infra is the error of a yard that cannot be read.
func infra(what string, err error) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the pool: " + what, Err: err}
}

// beginTime is how long a shepherd may take to stand by its ticket.
const beginTime = time.Minute

// Submit implements [jobs.Scheduler]. All that counts is in the script.
func (p *Pool) Submit(ctx context.Context, _ jobs.Launch, scriptPath string) (jobs.Handle, error) {
	script, err := os.ReadFile(scriptPath)
	if err != nil {
		return jobs.Handle{}, infra("read the script", err)
	}
	refused := func(why string) (jobs.Handle, error) {
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindRejected, Msg: "the pool refuses the job: " + why, Hint: "ask for less"}
	}
	o, err := orderOf(script)
	if err != nil {
		return refused(err.Error())
	}
	s, err := p.yard.site()
	switch {
	case err != nil:
		return jobs.Handle{}, infra("read what the site says", err)
	case o.CPUs > s.CPUs, o.Memory > s.Memory:
		return refused(fmt.Sprintf("a node has %d CPUs and %s", s.CPUs, s.Memory))
	case s.Limit > 0 && o.Limit > s.Limit:
		return refused("no job has more time than " + s.Limit.String())
	case !slices.ContainsFunc(s.Nodes, func(n string) bool { return !slices.Contains(o.Avoid, n) }):
		return refused("it avoids every node")
	}
	t, err := p.yard.make(o, script)
	if err != nil {
		return jobs.Handle{}, infra("make a ticket", err)
	}
	argv := []string{p.program, verbShepherd, string(p.yard), t.ID}
	d, err := run.Detach(argv, append([]string{"PATH=" + os.Getenv("PATH")}, s.Env...), "/", filepath.Join(p.yard.dir(t.ID), "shepherd.log"))
	if err != nil {
		return jobs.Handle{}, infra("start a shepherd", err)
	}
	h := handle(t)
	for until := time.Now().Add(beginTime); ; {
		if now, err := p.yard.load(t.ID); err == nil && now.Shepherd != 0 {
			return h, nil
		}
		select {
		case <-ctx.Done():
			return jobs.Handle{}, &jobs.Error{Kind: jobs.KindUnclear, Msg: "the pool has not said yet that it has the job", Err: context.Cause(ctx)}
		case <-d.Done:
			if now, err := p.yard.load(t.ID); err == nil && now.Shepherd != 0 {
				return h, nil
			}
			return jobs.Handle{}, infra("the shepherd of "+t.ID+" ended at once", nil)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(until) {
			return jobs.Handle{}, &jobs.Error{Kind: jobs.KindUnclear, Msg: "nobody looks after " + t.ID}
		}
	}
}

func handle(t *ticket) jobs.Handle {
	return jobs.Handle{Version: 1, Scheduler: Name, NativeID: t.ID, Name: t.Title}
}

// Find implements [jobs.Scheduler]. The last ticket of a title counts.
func (p *Pool) Find(_ context.Context, names []string) (map[string]jobs.Handle, error) {
	all, err := p.yard.tickets()
	if err != nil {
		return nil, infra("look for jobs", err)
	}
	found := map[string]jobs.Handle{}
	for _, t := range all {
		if slices.Contains(names, t.Title) {
			found[t.Title] = handle(t)
		}
	}
	return found, nil
}

// Status implements [jobs.Scheduler].
func (p *Pool) Status(_ context.Context, handles []jobs.Handle) (map[string]jobs.Status, error) {
	all, err := p.yard.tickets()
	if err != nil {
		return nil, infra("look at jobs", err)
	}
	answer := map[string]jobs.Status{}
	for _, h := range handles {
		for _, t := range all {
			if t.ID == h.NativeID && t.Title == h.Name && (t.over() || t.stands()) {
				answer[h.Name] = t.status()
			}
		}
	}
	return answer, nil
}

// Cancel implements [jobs.Scheduler].
func (p *Pool) Cancel(_ context.Context, handles []jobs.Handle) error {
	for _, h := range handles {
		if !idPattern.MatchString(h.NativeID) {
			continue
		}
		t, err := p.yard.load(h.NativeID)
		if errors.Is(err, fs.ErrNotExist) || err == nil && t.Title != h.Name {
			continue
		}
		if err == nil {
			err = p.yard.ask(h.NativeID, askEnd, "a client")
		}
		if err != nil {
			return infra("end "+h.NativeID, err)
		}
	}
	return nil
}

// Hold keeps a job that has not begun from beginning.
func (p *Pool) Hold(id string) error { return p.yard.ask(id, askHold, "") }

// Release ends that.
func (p *Pool) Release(id string) error { return p.yard.ask(id, askRelease, "") }

// Again puts a job that runs back into the queue, as for an urgent other one.
func (p *Pool) Again(id string) error { return p.yard.ask(id, askAgain, "") }

// Suspend stops all processes of a job that runs.
func (p *Pool) Suspend(id string) error { return p.yard.ask(id, askStill, "") }

// Resume lets them go on.
func (p *Pool) Resume(id string) error { return p.yard.ask(id, askOn, "") }

// Clear ends all jobs and waits until they have ended.
func (p *Pool) Clear(ctx context.Context) error {
	for {
		all, err := p.yard.tickets()
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(all, func(t *ticket) bool { return !t.stands() })
		if len(left) == 0 {
			return nil
		}
		for _, t := range left {
			if err := p.yard.ask(t.ID, askEnd, "the end"); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d jobs do not end", len(left))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Step implements [jobs.Cluster].
func (p *Pool) Step(h jobs.Handle, node string, argv []string) jobs.Cmd {
	return jobs.Cmd{Argv: append([]string{p.program, verbJoin, string(p.yard), h.NativeID, node}, argv...)}
}

// StepError implements [jobs.Cluster].
func (*Pool) StepError(h jobs.Handle, said string) (jobs.Kind, string, bool) {
	switch {
	case strings.Contains(said, saidOver):
		return jobs.KindNotFound, "it has just ended", false
	case strings.Contains(said, saidSoon):
		return jobs.KindAgain, "try again in a moment", true
	}
	return jobs.KindInfra, "look at " + h.NativeID, false
}

// Show implements [jobs.Cluster].
func (p *Pool) Show(h jobs.Handle) string {
	return "cat " + filepath.Join(p.yard.dir(h.NativeID), fileTicket)
}

// Most implements [jobs.Cluster].
func (p *Pool) Most(context.Context, jobs.SlurmOptions) (jobs.Most, error) {
	s, err := p.yard.site()
	return jobs.Most{Memory: s.Memory, MemoryWhy: "no node has more", Time: s.Limit, TimeWhy: "the site says so"}, err
}

// Partitions implements [jobs.Cluster]. There are none.
func (*Pool) Partitions() []string { return nil }

// Room implements [jobs.Cluster].
func (*Pool) Room(context.Context, jobs.SlurmOptions, string) (jobs.Room, error) {
	return jobs.Room{Elements: 1}, nil
}

// Forecast implements [jobs.Cluster]. There is always room.
func (*Pool) Forecast(_ context.Context, st jobs.Status, _ string, _ jobs.Resources, _ jobs.SlurmOptions) ([]jobs.Forecast, error) {
	if st.NativeState != queued || st.Reason != "" {
		return nil, nil
	}
	return []jobs.Forecast{{What: "as it is", Start: time.Now()}}, nil
}

// List implements [jobs.Cluster].
func (p *Pool) List(context.Context) ([]jobs.Listed, error) {
	all, err := p.yard.tickets()
	if err != nil {
		return nil, infra("list jobs", err)
	}
	var out []jobs.Listed
	for _, t := range all {
		if t.stands() && strings.HasPrefix(t.Title, "berth-") {
			out = append(out, jobs.Listed{Handle: handle(t), Dir: t.Folder})
		}
	}
	return out, nil
}
