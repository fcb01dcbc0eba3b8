package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"berth/jobs"
)

// Find returns the jobs of this machine that wait or run.
func (q *Queue) Find(_ context.Context, names []string) (map[string]jobs.Handle, error) {
	alive, at, err := q.alive()
	if err != nil {
		return nil, err
	}
	found := map[string]jobs.Handle{}
	for _, e := range alive {
		if slices.Contains(names, e.Name) {
			found[e.Name] = handle(e, at)
		}
	}
	return found, nil
}

// Status tells which jobs wait or run here. A job that is over is missing from
// the answer. A job of another host is in it with an empty state: nothing can
// be said about it from here.
func (q *Queue) Status(_ context.Context, handles []jobs.Handle) (map[string]jobs.Status, error) {
	alive, at, err := q.alive()
	if err != nil {
		return nil, err
	}
	answer := map[string]jobs.Status{}
	byID := map[string]entry{}
	for _, e := range alive {
		byID[e.nativeID()] = e
	}
	for _, h := range handles {
		if host, yes := at.elsewhere(h); yes {
			answer[h.Name] = jobs.Status{NativeState: "ELSEWHERE", Reason: "it is in the local queue of " + host,
				Hint: "ask on " + host, Node: host}
			continue
		}
		if e, ok := byID[h.NativeID]; ok && e.Name == h.Name {
			answer[h.Name] = q.status(e, alive, at.Host)
		}
	}
	return answer, nil
}

func (q *Queue) status(e entry, alive []entry, host string) jobs.Status {
	if e.Running {
		return jobs.Status{State: jobs.StateRunning, NativeState: "RUNNING", Node: host}
	}
	if e.Waiting != "" {
		return jobs.Status{State: jobs.StatePending, NativeState: "WAITING", Node: host, Reason: "waits for " + e.Waiting}
	}
	ahead := 0
	for _, other := range alive {
		if other.turn() < e.turn() && other.Waiting == "" {
			ahead++
		}
	}
	return jobs.Status{State: jobs.StatePending, NativeState: "WAITING", Node: host,
		Reason: fmt.Sprintf("waits for %s and %d MiB behind %s; the machine has %s and %d MiB",
			jobs.Plural(e.CPUs, "CPU"), e.Memory.MiB(), jobs.Plural(ahead, "job"), jobs.Plural(q.cfg.CPUs, "CPU"), q.memory().MiB())}
}

// Cancel sends TERM to the jobs' processes: one that waits ends, one that runs
// is the runner, which ends its task first. Jobs that are over are passed
// over; a job of another host is an error, because it would go on.
func (q *Queue) Cancel(_ context.Context, handles []jobs.Handle) error {
	alive, at, err := q.alive()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range handles {
		if host, yes := at.elsewhere(h); yes {
			errs = append(errs, &jobs.Error{Kind: jobs.KindInfra, Msg: "job " + h.Name + " is in the local queue of " + host,
				Hint: "cancel it on " + host})
			continue
		}
		for _, e := range alive {
			if e.nativeID() != h.NativeID || e.Name != h.Name || e.PID == os.Getpid() {
				continue
			}
			if err := terminate(e.PID, e.Started); err != nil {
				errs = append(errs, &jobs.Error{Kind: jobs.KindInfra, Msg: "cannot end the process of job " + h.Name, Err: err})
			}
		}
	}
	return errors.Join(errs...)
}

// alive are the entries of this host whose process runs.
func (q *Queue) alive() ([]entry, location, error) {
	dir, at, err := q.here()
	if err != nil {
		return nil, at, err
	}
	all, err := entries(dir)
	if err != nil {
		return nil, at, &jobs.Error{Kind: jobs.KindInfra, Msg: "cannot read the local queue", Err: err}
	}
	return living(all), at, nil
}
