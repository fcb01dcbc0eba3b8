package engine

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

	"berth/jobs"
	"berth/jobs/store"
)

// Follow takes the next step of each job, and reports it with say. The error names the
// jobs that need another look.
func (e *Engine) Follow(ctx context.Context, recs []*jobs.Record, say func(format string, args ...any)) error {
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

// followReap does the whole work of an attempt's reaper, see [Engine.Reap].
func followReap(ctx context.Context, e *Engine, recs []*jobs.Record, attempt, looks int, say func(format string, args ...any)) error {
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

// followGuard submits a reaper for each job that has none, see [Engine.Guard]. No
// command waits for it, and the process that has started it may be submitting the
// next job, so it lowers its own priority.
func followGuard(ctx context.Context, e *Engine, recs []*jobs.Record) {
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

// followMain is `berth-node follow ID...`, or --all, with the state directory in BERTH_HOME. It
// returns the exit code of the process.
func followMain(args []string, stderr io.Writer) int {
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
	err := followIDs(os.Getenv("BERTH_HOME"), fs.Args(), func(e *Engine, recs []*jobs.Record) error {
		if *reap {
			return followReap(ctx, e, recs, *attempt, *looks, say)
		}
		if *guard {
			followGuard(ctx, e, recs)
			return nil
		}
		return e.Follow(ctx, recs, say)
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

// followIDs has something done with jobs of a state directory, all of them if none is
// named. One that cannot be read keeps it from no other.
func followIDs(home string, ids []string, do func(*Engine, []*jobs.Record) error) error {
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
	return errors.Join(append(errs, do(assemble(st, nil, nil), recs))...)
}
