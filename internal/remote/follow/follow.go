// Package follow takes the next step of jobs that no berth command looks at. It is
// the verb "follow" of berth, and of the program for the nodes, which does this on
// clusters where no berth is installed.
package follow

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"berth/backends/all"
	"berth/engine"
	"berth/internal/node/nodebin"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// Do takes the next step of each job, and reports it with say. The error names the
// jobs that need another look.
func Do(ctx context.Context, e *engine.Engine, recs []*jobs.Record, say func(format string, args ...any)) error {
	before := map[string]int{}
	for _, r := range recs {
		before[r.Spec.ID] = len(r.Attempts)
	}
	var errs []error
	for _, v := range e.Reconcile(ctx, recs) {
		short := jobs.Short(v.Spec.ID)
		e.Guard(ctx, v.Record)
		if u := v.Stuck(); u != nil && v.Unfollowed == nil {
			errs = append(errs, &jobs.Error{Kind: jobs.KindInfra, Msg: "job " + short + ": " + u.Reason, Hint: u.Hint})
		}
		switch n := len(v.Attempts); {
		case v.AskError != nil:
			errs = append(errs, fmt.Errorf("job %s: %w", short, v.AskError))
		case v.Unfollowed != nil:
			errs = append(errs, fmt.Errorf("job %s: begin its next attempt: %w", short, v.Unfollowed))
		case n > before[v.Spec.ID]:
			say("job %s: attempt %d: %s", short, n, v.Attempts[n-2].Decision.Reason)
		}
	}
	return errors.Join(errs...)
}

// Reap does the whole work of an attempt's reaper, see [engine.Engine.Reap].
func Reap(ctx context.Context, e *engine.Engine, recs []*jobs.Record, attempt, looks int, say func(format string, args ...any)) error {
	if len(recs) != 1 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "--reap takes one job id"}
	}
	v, err := e.Reap(ctx, recs[0], attempt, looks)
	say("job %s, attempt %d: %s", jobs.Short(v.Spec.ID), v.Current().N, v.State)
	if v.Note != "" {
		say("note: %s", v.Note)
	}
	return err
}

// Guard submits a reaper for each job that has none, see [engine.Engine.Guard]. No
// command waits for it, and the process that has started it may be submitting the
// next job, so it lowers its own priority.
func Guard(ctx context.Context, e *engine.Engine, recs []*jobs.Record) {
	_ = syscall.Setpriority(syscall.PRIO_PGRP, 0, 5)
	for _, r := range recs {
		// Each submission takes a while, and another process may have submitted
		// the reaper of this job meanwhile.
		if now, err := store.LoadDir(r.Dir); err == nil {
			r = now
		}
		e.Guard(ctx, r)
	}
}

// Main is `berth-node follow ID...`, or --all, with the state directory in BERTH_HOME. It
// returns the exit code of the process.
func Main(args []string, stderr io.Writer) int {
	fs := flag.NewFlagSet(jobs.VerbFollow, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	reap := fs.Bool("reap", false, "")
	guard := fs.Bool("guard", false, "")
	attempt, looks := fs.Int("attempt", 0, ""), fs.Int("looks", 0, "")
	all := fs.Bool("all", false, "")
	if err := fs.Parse(args); err != nil || (fs.NArg() == 0) != *all {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node follow ID... | --all")
		return jobs.CodeUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(stderr, "berth: "+format+"\n", args...) }
	err := ids(os.Getenv("BERTH_HOME"), fs.Args(), func(e *engine.Engine, recs []*jobs.Record) error {
		if *reap {
			return Reap(ctx, e, recs, *attempt, *looks, say)
		}
		if *guard {
			Guard(ctx, e, recs)
			return nil
		}
		return Do(ctx, e, recs, say)
	})
	if err == nil {
		return jobs.CodeOK
	}
	say("error: %v", err)
	if h := jobs.HintOf(err); h != "" {
		say("hint: %s", h)
	}
	return jobs.CodeOf(err)
}

// ids has something done with jobs of a state directory, all of them if none is
// named. One that cannot be read keeps it from no other.
func ids(home string, ids []string, do func(*engine.Engine, []*jobs.Record) error) error {
	if !filepath.IsAbs(home) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "BERTH_HOME does not name the state directory"}
	}
	st, err := store.Open(home)
	if err != nil {
		return err
	}
	var recs []*jobs.Record
	var errs []error
	if len(ids) == 0 {
		if recs, err = st.ListOpen(); err != nil {
			return err
		}
	}
	for _, id := range ids {
		r, err := st.Load(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		recs = append(recs, r)
	}
	return errors.Join(append(errs, do(assemble(st), recs))...)
}

// assemble makes an engine of what goes on with jobs. It plans none.
func assemble(st *store.Store) *engine.Engine {
	on := run.Local{}
	self := func() (string, error) { return nodebin.Self(st.Bin()) }
	program := all.Program(on, st.Home(), st.Owner, nil, nil)
	return &engine.Engine{
		Store:      st,
		Schedulers: all.Schedulers(on, st.Queue()),
		Backends:   all.Backends(on),
		Program: func(name string) engine.Program {
			if b := program(name); b != nil {
				return b
			}
			return nil
		},
		Git:    workspace.New(on),
		Node:   self,
		Getenv: os.LookupEnv,
		Now:    time.Now,
		Sleep:  engine.Sleep,
	}
}
