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

	"berth/internal/sweep"
	"berth/jobs"
)

// Main is "sweep-worker --sweep DIR" of berth-node: a worker until nothing is left. It
// returns the exit code.
func Main(args []string, stderr io.Writer) int {
	f := flag.NewFlagSet(Verb, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	dir := f.String("sweep", "", "")
	if err := f.Parse(args); err != nil || !filepath.IsAbs(*dir) || f.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node "+Verb+" --sweep DIR")
		return jobs.CodeUsage
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(stderr, "berth: "+format+"\n", args...) }
	s, err := sweep.Open(*dir)
	if err != nil {
		say("%v", err)
		return jobs.CodeInfra
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch err := Run(ctx, Config{Sweep: s, Env: os.Environ(), Log: say}); {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		say("%v", err)
		return jobs.CodeAgain
	case err != nil && !errors.Is(err, context.Canceled):
		say("%v", err)
		return jobs.CodeInfra
	}
	return 0
}
