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
	for i := range r.spec.Further {
		g.Others = append(g.Others, jobs.WorkspaceDir(r.spec.Further[i].Name))
	}
	return g
}

// gitOf is the same for one of the job's workspaces, and where its result is kept.
func (r *attempt) gitOf(w *jobs.WorkspaceSpec) (g *workspace.Git, dir string) {
	if g = r.git(); w.Name != "" {
		g.Below, g.Others = jobs.WorkspaceDir(w.Name), nil
	}
	return g, jobs.ResultDir(r.dir, w.Name)
}

// collectFor is how long collecting may go on behind the task's time limit, where
// the scheduler has no limit of its own.
const collectFor = 10 * time.Minute

// collect makes the result of what the task left in its work tree, and copies
// the artifacts. The container is gone, so nothing changes under it. When the
// scheduler leaves little time and it runs out, or something is left out, the
// task's files are kept.
func (r *attempt) collect(parent context.Context, out *outcome) {
	ctx, cancel := r.inTime(parent)
	defer cancel()
	if d := r.deadline(out.started); !d.IsZero() {
		in, done := context.WithDeadline(ctx, d.Add(collectFor))
		defer done()
		ctx = in
	}
	r.event("collecting", "")
	work := r.work()
	var reasons []string
	if err := r.collectResults(ctx, out); err != nil {
		if out.err = workspaceError(err); errors.Is(err, workspace.ErrReplaced) { // which another attempt would do again
			r.stop.set(why{state: jobs.StateFailed, class: jobs.ClassTask, reason: out.err.Error(), hint: jobs.HintOf(out.err)})
		}
		reasons = append(reasons, fmt.Sprintf("the result could not be collected: %v", err))
	}
	if len(r.spec.Artifacts) > 0 {
		l := r.spec.Results
		arts, err := workspace.CollectArtifacts(ctx, work, filepath.Join(r.dir, "artifacts"), r.spec.Artifacts,
			workspace.ArtifactLimits{FileBytes: int64(l.ArtifactFile), TotalBytes: int64(l.ArtifactSize), Files: l.ArtifactFiles, Link: true})
		if err != nil && ctx.Err() == nil {
			reasons = append(reasons, fmt.Sprintf("the artifacts could not be collected: %v", err))
			out.leftOut = append(out.leftOut, jobs.Omission{Of: jobs.OfArtifacts,
				Kind: string(workspace.Unreadable), Why: "that could not be collected", Paths: 1})
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
	if len(reasons) == 0 && partial(out.leftOut) {
		reasons = append(reasons, "not all came back")
	}
	if len(reasons) > 0 {
		r.keepWork(ctx, work, out, strings.Join(reasons, "; "))
	}
}

// collectResults makes the commits of what changed in the workspaces, and their bundles.
// Where one fails there is no result: what came back would not be what the task has done.
func (r *attempt) collectResults(ctx context.Context, out *outcome) error {
	var all []workspace.Result
	var result *jobs.Result
	for _, w := range r.spec.Workspaces() {
		res, err := r.collectResult(ctx, w)
		if err != nil {
			return ofWorkspace(w, err)
		}
		all = append(all, res)
		if one := res.Record(); result == nil {
			result = &one
		} else {
			one.Workspace = w.Name
			result.Further = append(result.Further, one)
		}
		for _, o := range res.Omitted {
			o.Workspace = w.Name
			out.leftOut = append(out.leftOut, o)
		}
	}
	out.result, out.collected = result, all
	return nil
}

// ofWorkspace says of which workspace an error is, where there are several.
func ofWorkspace(w *jobs.WorkspaceSpec, err error) error {
	if err == nil || w.Name == "" {
		return err
	}
	return fmt.Errorf("workspace %s: %w", w.Name, err)
}

// collectResult makes the commit of what changed in one workspace, and its bundle.
func (r *attempt) collectResult(ctx context.Context, w *jobs.WorkspaceSpec) (workspace.Result, error) {
	scope, err := workspace.ParseScope(w.Scope)
	if err != nil {
		return workspace.Result{}, err
	}
	git, dir := r.gitOf(w)
	return git.Collect(ctx, dir, sourceOf(w), workspace.CollectOptions{Branch: w.Branch, Scope: scope, Artifacts: r.spec.Artifacts, Ignore: w.Ignore,
		Limits:  workspace.ResultLimits(r.spec.Results),
		Message: fmt.Sprintf("%s\n\nBerth-Job: %s\nBerth-Attempt: %s\n", r.spec.Name, r.spec.ID, r.info.ID)})
}

func partial(all []jobs.Omission) bool { return (&jobs.ExitRecord{LeftOut: all}).Partial() }

// deliver brings the results into the user's repositories. The next client verb
// does when that fails, from where the repository may be writable.
func (r *attempt) deliver(ctx context.Context, out *outcome) {
	if out.result == nil || !r.accepted() {
		return
	}
	ctx, cancel := r.inTime(ctx)
	defer cancel()
	to := out.result.All()
	for i, w := range r.spec.Workspaces() {
		if !out.collected[i].Changed || w.Copy { // then the repository is on another machine, which fetches the bundle
			continue
		}
		git, dir := r.gitOf(w)
		if err := git.Intake(ctx, sourceOf(w), filepath.Join(dir, workspace.BundleFile), w.Branch, out.collected[i]); err != nil {
			to[i].TakeError = err.Error()
			r.log.Warn("the branch could not be brought into the repository", "repository", w.Repo, "err", err)
			continue
		}
		to[i].Taken = true
		r.event("branch", strings.TrimSuffix(w.Branch+" of "+w.Name, " of "))
	}
}

func sourceOf(w *jobs.WorkspaceSpec) workspace.Source {
	return workspace.Source{Repo: w.GitDir, Top: w.Repo, Base: w.Base, Branch: w.BaseRef}
}

// codeOf is the exit code of `berth wait`, as docs/exit-codes.md has it.
func codeOf(rec jobs.ExitRecord, err error) int {
	switch rec.State {
	case jobs.StateCompleted:
		if rec.Result != nil && len(rec.Result.Outside()) > 0 {
			return jobs.CodeOutOfScope
		}
		if rec.Partial() {
			return jobs.CodePartial
		}
		if rec.Result != nil && rec.Result.Empty() {
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
