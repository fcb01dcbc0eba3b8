package worker

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

	nodejob "berth/internal/node/batch"
	"berth/internal/sweep"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// Main is "sweep-worker --sweep DIR [--keys FILE]" of berth-node: a worker until nothing is left.
// FILE has the variables of the program of a service, and is removed. left tells whether the sandbox
// may run still whose keeper had its records in dir. It returns the exit code.
func Main(args []string, left func(dir string, now time.Time) bool, stderr io.Writer) int {
	f := flag.NewFlagSet(Verb, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	dir, keys := f.String("sweep", "", ""), f.String("keys", "", "")
	if err := f.Parse(args); err != nil || !filepath.IsAbs(*dir) || f.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node "+Verb+" --sweep DIR [--keys FILE]")
		return jobs.CodeUsage
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(stderr, "berth: "+format+"\n", args...) }
	var values []string
	if *keys != "" {
		var err error
		if values, err = store.TakeValues(*keys); err != nil { // first: they are not to stay, whatever else is wrong
			say("%v", err)
			return jobs.CodeInfra
		}
	}
	s, err := sweep.Open(*dir)
	if err != nil {
		say("%v", err)
		return jobs.CodeInfra
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	c := Config{Sweep: s, Env: os.Environ(), Keys: values, Left: left, Log: say}
	in, job := nodejob.Here(os.Getenv)
	c.Scheduler = in
	if c.Job = job.ID; job.ID != "" {
		c.Ends = nodejob.End(ctx, run.Local{}, in, job)
	} else if p := s.Spec.Worker; p != nil && p.Resources.Time > 0 {
		c.Ends = time.Now().Add(p.Resources.Time) // the queue of a machine has no limit of its own
	}
	switch err := Run(ctx, c); {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		say("%v", err)
		return jobs.CodeAgain
	case err != nil && !errors.Is(err, context.Canceled):
		say("%v", err)
		return jobs.CodeInfra
	}
	return 0
}
