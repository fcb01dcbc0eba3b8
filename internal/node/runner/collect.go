package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
)

// inTime ends in time for the record: before the scheduler's limit, and when it
// becomes impatient.
func (r *attempt) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	done := func() {}
	if !r.jobEnd.IsZero() {
		// Slurm's limit comes after berth's own, and ends the record too.
		ctx, done = context.WithDeadline(ctx, r.jobEnd.Add(-2*time.Second))
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() { // the scheduler may become impatient only now
		select {
		case <-ctx.Done():
			return
		case <-r.stop.Done():
		}
		var soon <-chan time.Time
		if w := r.stop.Why(); w.hurry > 0 {
			soon = time.After(time.Until(w.at.Add(w.hurry - time.Second)))
		}
		select {
		case <-ctx.Done():
		case <-r.stop.again.Done():
			cancel()
		case <-soon:
			cancel()
		}
	}()
	return ctx, func() { cancel(); done() }
}

func (r *attempt) git() *workspace.Git {
	g := workspace.New(r.on)
	g.Work = r.work()
	return g
}

// collectFor is how long collecting may go on behind the task's time limit, where
// the scheduler has no limit of its own.
const collectFor = 10 * time.Minute

// collect makes the result of what the task left in its work tree, and copies
// the artifacts. The container is gone, so nothing changes under it. When the
// scheduler leaves little time and it runs out, or something is left out, the
// task's files are kept.
func (r *attempt) collect(parent context.Context, git *workspace.Git, src workspace.Source, out *outcome) {
	ctx, cancel := r.inTime(parent)
	defer cancel()
	if d := r.deadline(out.started); !d.IsZero() {
		in, done := context.WithDeadline(ctx, d.Add(collectFor))
		defer done()
		ctx = in
	}
	r.event("collecting", "")
	work := r.work()
	var why []string
	if err := r.collectResult(ctx, git, src, out); err != nil {
		out.err = workspaceError(err)
		why = append(why, fmt.Sprintf("the result could not be collected: %v", err))
	}
	if len(r.spec.Artifacts) > 0 {
		l := r.spec.Results
		arts, err := workspace.CollectArtifacts(ctx, work, filepath.Join(r.dir, "artifacts"), r.spec.Artifacts,
			workspace.ArtifactLimits{FileBytes: int64(l.ArtifactFile), TotalBytes: int64(l.ArtifactSize), Files: l.ArtifactFiles, Link: true})
		if err != nil && ctx.Err() == nil {
			why = append(why, fmt.Sprintf("the artifacts could not be collected: %v", err))
			out.leftOut = append(out.leftOut, jobs.Omission{Of: jobs.OfArtifacts, Kind: string(workspace.Unreadable), Why: "that could not be collected", Paths: 1})
		}
		out.arts, out.artFiles, out.artBytes = listed(arts.Copied)
		for _, p := range arts.Missing {
			r.note("no file matches the artifact pattern " + p)
		}
		out.leftOut = append(out.leftOut, arts.Omitted...)
	}
	for _, o := range out.leftOut {
		r.note("left out of the " + o.String())
	}
	if len(why) == 0 && partial(out.leftOut) {
		why = append(why, "not all came back")
	}
	if len(why) > 0 {
		r.keepWork(ctx, work, out, strings.Join(why, "; "))
	}
}

// collectResult makes the commit of what changed, and its bundle.
func (r *attempt) collectResult(ctx context.Context, git *workspace.Git, src workspace.Source, out *outcome) error {
	w := r.spec.Workspace
	scope, err := workspace.ParseScope(w.Scope)
	if err != nil {
		return err
	}
	res, err := git.Collect(ctx, r.dir, src, workspace.CollectOptions{Branch: w.Branch, Scope: scope, Artifacts: r.spec.Artifacts, Ignore: w.Ignore,
		Limits:  workspace.ResultLimits(r.spec.Results),
		Message: fmt.Sprintf("%s\n\nBerth-Job: %s\nBerth-Attempt: %s\n", r.spec.Name, r.spec.ID, r.info.ID)})
	if err != nil {
		return err
	}
	out.result, out.collected = resultOf(res), res
	out.leftOut = append(out.leftOut, res.Omitted...)
	return nil
}

func partial(all []jobs.Omission) bool { return (&jobs.ExitRecord{LeftOut: all}).Partial() }

// deliver brings the result into the user's repository. The next client verb
// does when it fails, from where the repository may be writable.
func (r *attempt) deliver(ctx context.Context, out *outcome) {
	w := r.spec.Workspace
	if w == nil || !out.collected.Changed || !r.accepted() {
		return
	}
	if w.Copy {
		return // the user's repository is on another machine, which fetches the bundle
	}
	ctx, cancel := r.inTime(ctx)
	defer cancel()
	if err := r.git().Intake(ctx, sourceOf(w), filepath.Join(r.dir, workspace.BundleFile), w.Branch, out.collected); err != nil {
		out.result.TakeError = err.Error()
		r.log.Warn("the branch could not be brought into the repository", "err", err)
		return
	}
	out.result.Taken = true
	r.event("branch", w.Branch)
}

func sourceOf(w *jobs.WorkspaceSpec) workspace.Source {
	return workspace.Source{Repo: w.GitDir, Top: w.Repo, Base: w.Base, Branch: w.BaseRef}
}

// resultOf carries a workspace's result into the exit record.
func resultOf(res workspace.Result) *jobs.Result {
	out := res.Record()
	return &out
}

// codeOf is the exit code of `berth wait`, as docs/exit-codes.md has it.
func codeOf(rec jobs.ExitRecord, err error) int {
	switch rec.State {
	case jobs.StateCompleted:
		if rec.Result != nil && len(rec.Result.OutOfScope) > 0 {
			return jobs.CodeOutOfScope
		}
		if rec.Partial() {
			return jobs.CodePartial
		}
		if rec.Result != nil && rec.Result.Commit == "" && rec.Result.Apart == 0 {
			return jobs.CodeNoChanges
		}
		return jobs.CodeOK
	case jobs.StateCancelled:
		return jobs.CodeInterrupted
	case jobs.StateTimeout:
		return jobs.CodeTimeout
	case jobs.StateError:
		if err != nil && !errors.Is(err, errStopped) {
			return jobs.CodeOf(err)
		}
		return jobs.CodeInfra
	case jobs.StateFailed, jobs.StateOutOfMemory, jobs.StateLost, jobs.StateSubmitting, jobs.StatePending, jobs.StateRunning:
	}
	return jobs.CodeTaskFailed
}

// ended goes on after "the command".
func ended(e jobs.Exit) string {
	switch {
	case !e.Started:
		return e.String()
	case e.Signal != 0:
		return "was " + e.String()
	}
	return "ended with " + e.String()
}

func commandText(c jobs.Command) string {
	if c.Shell != "" {
		return c.Shell
	}
	return fmt.Sprintf("%q", c.Argv)
}
