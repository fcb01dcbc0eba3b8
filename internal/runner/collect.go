package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"berth/internal/container"
	"berth/internal/disk"
	"berth/internal/session"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
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
		case <-r.stop.done:
		}
		w := r.stop.get()
		if w.hurry == 0 {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(w.at.Add(w.hurry - time.Second))):
			cancel()
		}
	}()
	return ctx, func() { cancel(); done() }
}

func (r *attempt) git() *workspace.Git {
	return workspace.New(r.on)
}

// collect makes the result of what the task left in its work tree. The
// container is gone, so nothing changes under it. When the scheduler leaves
// little time and it runs out, the task's files stay where they are.
func (r *attempt) collect(ctx context.Context, git *workspace.Git, src workspace.Source, out *outcome) {
	ctx, cancel := r.inTime(ctx)
	defer cancel()
	r.event("collecting", "")
	w := r.spec.Workspace
	keep := func(what string, err error) {
		out.kept = true
		r.note(fmt.Sprintf("%s: %v; the task's files are kept in %s", what, err, filepath.Join(r.dir, "work")))
	}
	if len(r.spec.Artifacts) > 0 {
		arts, err := workspace.CollectArtifacts(ctx, filepath.Join(r.dir, "work"), filepath.Join(r.dir, "artifacts"), r.spec.Artifacts, workspace.ArtifactLimits{})
		if err != nil {
			keep("the artifacts could not be collected", err)
		}
		for _, a := range arts.Copied {
			out.arts = append(out.arts, fmt.Sprint(a.Path))
		}
		for _, p := range arts.Missing {
			r.note("no file matches the artifact pattern " + p)
		}
	}
	scope, err := workspace.ParseScope(w.Scope)
	if err != nil {
		keep("the scope cannot be read", err)
		out.err = workspaceError(err)
		return
	}
	res, err := git.Collect(ctx, r.dir, src, workspace.CollectOptions{Branch: w.Branch, Scope: scope,
		Message: fmt.Sprintf("%s\n\nBerth-Job: %s\nBerth-Attempt: %s\n", r.spec.Name, r.spec.ID, r.info.ID)})
	if err != nil {
		keep("the result could not be collected", err)
		out.err = workspaceError(err)
		return
	}
	out.result, out.collected = resultOf(res), res
}

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

// resultOf carries a workspace's result into the exit record; the manifest
// beside it has every path.
func resultOf(res workspace.Result) *jobs.Result {
	out := &jobs.Result{Branch: res.Branch, Base: res.Base, Commit: res.Commit, Tree: res.Tree, Files: len(res.Files),
		Insertions: res.Insertions, Deletions: res.Deletions, Skipped: len(res.Skipped) + res.SkippedMore}
	const enough = 20
	for i, p := range res.OutOfScope {
		if i == enough {
			out.OutOfScope = append(out.OutOfScope, fmt.Sprintf("and %d more", len(res.OutOfScope)-enough))
			break
		}
		out.OutOfScope = append(out.OutOfScope, fmt.Sprint(p))
	}
	return out
}

// runDone runs the done commands in a fresh container of the same image: on a
// clone of the result, so that nothing counts that is not on the branch, and
// over a copy of the layer that is thrown away, so that what the agent
// installed is there and what the checks do is not kept.
func (r *attempt) runDone(ctx context.Context, git *workspace.Git, src workspace.Source, secrets []string, out *outcome) error {
	r.event("checking", fmt.Sprintf("%d done commands", len(r.spec.Done)))
	if r.spec.Workspace != nil {
		to := filepath.Join(r.dir, workspace.WorkDir)
		if err := errors.Join(disk.RemoveTree(to), git.Recheckout(ctx, r.dir, src, out.result.Commit, to)); err != nil {
			return workspaceError(err)
		}
	}
	p := *out.place
	if p.layer != nil && r.spec.Overlay.Name != "" {
		layer, err := overlay.Copy(ctx, r.on, p.layer, r.scratch.Dir, r.spec.Overlay)
		if err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "copy the overlay for the done commands", Err: err}
		}
		defer func() { _ = layer.Close() }()
		p.layer = layer
	}
	argv, err := r.finalArgv(&p)
	if err != nil {
		return err
	}
	c, err := r.openContainer(ctx, argv)
	if err != nil {
		return err
	}
	defer r.close(c)
	if err := r.send(ctx, c); err != nil {
		return err
	}
	stdout, err := r.openLog(store.FileDoneStdout)
	if err != nil {
		return err
	}
	defer stdout.close()
	stderr, err := r.openLog(store.FileDoneStderr)
	if err != nil {
		return err
	}
	defer stderr.close()
	deadline := r.deadline(out.started)
	env := append(container.Passed(os.Environ()), r.taskEnv(secrets, deadline)...)
	for _, cmd := range r.spec.Done {
		_, _ = io.WriteString(stderr, "+ "+commandText(cmd)+"\n")
		p, err := c.Session().Start(session.StartRequest{Command: cmd, Env: env, Dir: r.workDir(c)}, stdout, stderr)
		if err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "start a done command", Err: err}
		}
		res, err := r.supervise(c, p, deadline)
		if err != nil {
			return err
		}
		if !res.Exit.OK() {
			r.heed(res.Exit)
			if err := r.abandoned(c); err != nil {
				return err
			}
		}
		out.done = append(out.done, jobs.DoneResult{Command: cmd, Exit: res.Exit})
		if !res.Exit.OK() || r.stop.get() != nil {
			return nil
		}
	}
	return nil
}

// codeOf is the exit code of `berth wait`, as docs/exit-codes.md has it.
func codeOf(rec jobs.ExitRecord, err error) int {
	switch rec.State {
	case jobs.StateCompleted:
		if rec.Result != nil && len(rec.Result.OutOfScope) > 0 {
			return jobs.CodeOutOfScope
		}
		if rec.Result != nil && rec.Result.Commit == "" {
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
