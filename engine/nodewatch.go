package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// These times bound the watch: the heartbeat of a killed runner has to get old, a
// full disk may get room again, and an attempt may have to wait.
const (
	watchSoon, watchLate = time.Second, time.Minute
	watchFor             = 24 * time.Hour
)

// watchMain is the rest of the process of a queued job, `berth-node queue-watch
// DIR`, once the job's own has ended, see [watch]. It returns the exit code.
func watchMain(args []string, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir := args[0]
	st, err := store.Open(filepath.Dir(filepath.Dir(filepath.Dir(store.JobDirOf(dir)))))
	if err == nil {
		err = watch(ctx, assemble(st, nil, nil), dir)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "berth: error:", err)
	}
	return jobs.CodeOf(err)
}

// watch takes the next steps of a job of this machine's queue whose process has
// ended, until the job is over, or another attempt of it has a process that does
// so. A job that has ended in order costs one look.
func watch(ctx context.Context, e *Engine, attemptDir string) error {
	dir := store.JobDirOf(attemptDir)
	begun := e.Now()
	for pause := watchSoon; ; pause = min(pause*2, watchLate) {
		r, err := store.LoadDir(dir)
		if errors.Is(err, fs.ErrNotExist) || jobs.KindOf(err) == jobs.KindNotFound {
			return nil // the job was removed
		}
		if err == nil {
			if watched(r, attemptDir) {
				return nil
			}
			v := e.Reconcile(ctx, []*jobs.Record{r})[0]
			if watched(v.Record, attemptDir) {
				return nil
			}
			err = errors.Join(v.AskError, v.Unfollowed)
		}
		if e.Now().Sub(begun) > watchFor {
			return &jobs.Error{Kind: jobs.KindInfra,
				Msg: fmt.Sprintf("job %s is left alone: nothing came of it in %v", jobs.Short(filepath.Base(dir)), watchFor),
				Err: err}
		}
		if err := e.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// watched tells whether nothing is left to be done for the attempt's job by
// whoever stays behind this attempt.
func watched(r *jobs.Record, attemptDir string) bool {
	a := r.Current()
	if a.Dir != attemptDir && (a.Submitted != nil || a.Claim != nil) {
		return true
	}
	return jobs.StateOf(r).Final() && (r.Spec.Retry == nil || a.Decision != nil)
}
