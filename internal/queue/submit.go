package queue

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/failpoint"
	"berth/internal/sys/run"
	"berth/jobs"
)

// enterTimeout is how long a new process may take to enter the queue.
const enterTimeout = time.Minute

// Submit starts the job's process and waits until it stands in the queue. The
// process survives this one and its terminal; it ends only by itself, by
// [Queue.Cancel] or with the machine.
func (q *Queue) Submit(ctx context.Context, l jobs.Launch, scriptPath string) (jobs.Handle, error) {
	if err := q.fits(l.Resources); err != nil {
		return jobs.Handle{}, err
	}
	dir, at, err := q.here()
	if err != nil {
		return jobs.Handle{}, err
	}
	if !validEntry(l.Name) {
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindUsage, Msg: "job name " + l.Name + " cannot be the name of a file"}
	}
	failed := func(kind jobs.Kind, msg string, err error) (jobs.Handle, error) {
		return jobs.Handle{}, &jobs.Error{Kind: kind, Msg: msg, Err: err, Hint: "see " + filepath.Join(l.Dir, jobs.SchedulerLog)}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return failed(jobs.KindInfra, "cannot make the local queue", err)
	}
	w := waiter{dir: dir, entry: entry{Name: l.Name}, cpus: q.cfg.CPUs, memory: q.memory(), argv: []string{"bash", scriptPath}}
	w.entry.CPUs, w.entry.Memory = want(l.Resources)
	if len(l.After) > 0 {
		w.attempt, w.client = l.Dir, l.Client
	}
	if l.Requeue {
		w.watch = l.Dir
	}
	argv := append(append(run.Scope(l.Identity.User, jobEnv(q.cfg.Environ)), q.node(l)), w.args()...)
	p, err := run.Detach(argv, jobEnv(q.cfg.Environ), l.Dir, filepath.Join(l.Dir, jobs.SchedulerLog))
	if err != nil {
		return failed(jobs.KindInfra, "cannot start the job's process", err)
	}

	failpoint.Hit("queue.started")
	timeout := time.NewTimer(enterTimeout)
	defer timeout.Stop()
	for ended := false; ; {
		all, err := entries(dir)
		if err != nil {
			return failed(jobs.KindUnclear, "cannot read the local queue", err)
		}
		for _, e := range all {
			// A name is one attempt's; the job may be over by now.
			if e.Name == l.Name {
				return handle(e, at), nil
			}
		}
		if ended {
			return failed(jobs.KindInfra, "the job's process ended before it stood in the queue", nil)
		}
		select {
		case <-p.Done:
			ended = true // look once more
		case <-ctx.Done():
			return failed(jobs.KindUnclear, "the job's process did not yet stand in the queue", context.Cause(ctx))
		case <-timeout.C:
			return failed(jobs.KindUnclear, "the job's process does not enter the queue", nil)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func handle(e entry, at location) jobs.Handle {
	o, err := json.Marshal(at)
	if err != nil {
		o = nil
	}
	return jobs.Handle{Version: 1, Scheduler: jobs.SchedulerLocal, NativeID: e.nativeID(), Name: e.Name, Opaque: o}
}

// node is the program that waits: the configured one, else the one that the
// job itself begins with, which knows "queue-wait" too.
func (q *Queue) node(l jobs.Launch) string {
	if q.cfg.Node != "" {
		return q.cfg.Node
	}
	return l.Argv[0]
}
