package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"berth/internal/link/session"
	"berth/internal/node/container"
	"berth/internal/workspace"
	"berth/jobs"
)

// checkpointBundles are the files of the work in progress that checkpoints have
// kept.
const checkpointBundles = "checkpoint-*.bundle"

// longestHook bounds the timeout of a checkpoint's hook. The hook runs beside the
// task, and nothing waits for its end.
const longestHook = 10 * time.Minute

// hookIn returns a function that runs the task's hook in its container. The hook
// gets why as BERTH_HOOK, and most is its timeout.
func (r *attempt) hookIn(c *container.Container, env []string) func(ctx context.Context, why string, most time.Duration) {
	if r.spec.Resume == nil || r.spec.Resume.Hook.Empty() {
		return nil
	}
	return func(ctx context.Context, why string, most time.Duration) {
		r.hooking.Lock()
		defer r.hooking.Unlock()
		if ctx.Err() != nil {
			return
		}
		r.event("hook", why)
		if err := r.runHook(ctx, c, append(env[:len(env):len(env)], "BERTH_HOOK="+why), most); err != nil {
			r.event("hook_failed", err.Error())
			r.note("the hook failed: " + err.Error() + "; see berth logs --runtime " + jobs.Short(r.spec.ID))
		}
	}
}

func (r *attempt) runHook(ctx context.Context, c *container.Container, env []string, most time.Duration) error {
	p, err := c.Session().Start(session.StartRequest{
		Command: r.spec.Resume.Hook,
		Env:     env,
		Dir:     r.workDir(c),
		Timeout: most,
		Grace:   time.Second / 2,
	}, r.logFile, r.logFile)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = p.Terminate(0) })()
	res, err := p.Wait()
	switch {
	case err != nil || ctx.Err() != nil:
		return err
	case res.Exit.Code == jobs.CodeTimeout:
		return fmt.Errorf("it was ended after %s, which is its time", most)
	case !res.Exit.OK():
		return errors.New("it " + ended(res.Exit))
	}
	return nil
}

// checkpoints makes checkpoints at the interval resume.every while the task runs,
// until the returned function is called. That function ends the checkpoint under
// way and waits for it.
func (r *attempt) checkpoints(started time.Time) func() {
	p := r.spec.Resume
	if p == nil || p.Every == 0 {
		return func() {}
	}
	ctx, cancel := r.stop.Context(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(p.Every):
			}
			if r.hook != nil {
				r.hook(ctx, "checkpoint", min(max(p.Every/2, time.Second), longestHook))
			}
			if err := r.checkpoint(ctx, started); err != nil && ctx.Err() == nil {
				r.event("no_checkpoint", err.Error())
				r.log.Warn("there is no checkpoint; the one before stands", "err", err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// checkpointTries is the number of tries for one checkpoint. A try fails when the
// task changes a file while it is read.
const checkpointTries = 5

// checkpoint saves the state of the workspace while the task runs. The layer is
// not copied: there is no way to know when its files are consistent.
func (r *attempt) checkpoint(ctx context.Context, started time.Time) error {
	w := r.spec.Workspace
	n := r.points + 1
	name := fmt.Sprintf("checkpoint-%04d.bundle", n)
	ran := time.Since(started)
	var res workspace.Result
	for try := 1; ; try++ {
		var err error
		// A ref of its own: git that is ended in the middle may leave it locked.
		res, err = r.git().Collect(ctx, r.dir, sourceOf(w), workspace.CollectOptions{Branch: fmt.Sprintf("berth-checkpoint/%d-%d", n, try),
			Bundle:  name,
			Message: fmt.Sprintf("%s: work in progress\n\nBerth-Job: %s\nBerth-Attempt: %s\n", r.spec.Name, r.spec.ID, r.info.ID)})
		if err == nil {
			break
		}
		if !errors.Is(err, workspace.ErrChanging) || try == checkpointTries {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !r.mark(jobs.Checkpoint{Version: 1, Number: n, Ran: ran, Time: time.Now().UTC(), Point: r.here(res.Commit, name)}) {
		return errors.New("it could not be recorded")
	}
	r.event("checkpoint", fmt.Sprintf("%d: %s", n, res.Commit))
	// A process that decides right now may still have read the record of the
	// checkpoint before, so the bundle of that one stays.
	_ = os.Remove(filepath.Join(r.dir, fmt.Sprintf("checkpoint-%04d.bundle", n-2)))
	return nil
}
