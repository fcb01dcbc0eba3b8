package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/link/session"
	"berth/internal/node/batch"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// checksBefore tells whether the done commands run over a named overlay as it was
// before the task, which the attempt must then not change in place.
func (r *attempt) checksBefore() bool {
	return len(r.spec.Done) > 0 && r.spec.DoneOver != jobs.DoneOverTask && r.spec.Overlay.Name != ""
}

// snapshotAs is what the attempt asks of its named overlay, of which the task
// wants this: a check that the task could prepare decides nothing, so that the
// layer is copied then whatever that costs.
func (r *attempt) snapshotAs(want string) string {
	if r.checksBefore() && want != jobs.SnapshotNever {
		return jobs.SnapshotAlways
	}
	return want
}

// before settles what [overlay.Layer.Snapshot] has said, so that nothing is found
// out only when the task has run.
func (r *attempt) before(use *jobs.OverlayUse, err error) error {
	switch {
	case !r.checksBefore():
	case err != nil:
		return &jobs.Error{Kind: jobs.KindOf(err), Err: err,
			Hint: `is there space left? df -h ` + r.stateDir() +
				`; done_over = "task" has the checks run over what the task leaves, and needs no copy`}
	case use.Way != jobs.WaySnapshot:
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: "done: the task changes overlay " + use.Name +
				" in place, so that nothing is there to check with that the task could not prepare",
			Hint: `done_over = "task" has the checks run over what the task leaves, and the record says so`}
	default:
		use.Why = "its done commands run over it as it was before the task"
	}
	return err
}

// placeOfDone is where the done commands run, and what ends its use: over the
// layer as it was before the task (of one that is thrown away, before the first
// attempt: empty), or over what the task has left; with /tmp of their own, and
// HOME on that layer. A named overlay gets nothing of what they write.
func (r *attempt) placeOfDone(ctx context.Context, of *place) (_ *place, end func(), err error) {
	p := *of
	if p.scratch, err = r.scratch.Another("done"); err != nil {
		return nil, nil, err
	}
	p.work = filepath.Join(p.scratch.Dir, workspace.WorkDir)
	if of.layer == nil { // none, or that of a new container
		return &p, func() {}, nil
	}
	spec := r.spec.Overlay
	spec.Templates = store.TemplatesIn(r.stateDir())
	switch {
	case r.spec.DoneOver == jobs.DoneOverTask && spec.Name == "":
		return &p, func() {}, nil
	case r.spec.DoneOver == jobs.DoneOverTask:
		p.layer, err = overlay.Copy(ctx, r.on, of.layer, p.scratch.Dir, spec)
	case spec.Name == "":
		p.layer, err = overlay.Temporary(ctx, r.on, p.scratch.Dir, spec)
	default:
		p.layer, err = overlay.Before(ctx, r.on, of.layer, p.scratch.Dir, spec)
	}
	if err != nil {
		return nil, nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make the layer for the done commands", Err: err,
			Hint: "is there space left? df -h " + p.scratch.Dir}
	}
	return &p, func() { _ = p.layer.Close() }, nil
}

// placeArtifacts copies the artifacts that came back into the tree that the done
// commands check. What could not come back is not there either.
func (r *attempt) placeArtifacts(ctx context.Context, work string) error {
	if len(r.spec.Artifacts) == 0 {
		return nil
	}
	_, err := workspace.CollectArtifacts(ctx, filepath.Join(r.dir, "artifacts"), work, r.spec.Artifacts, workspace.ArtifactLimits{Others: true})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there are none
	}
	return err
}

// runDone runs the done commands in a container of their own of the same image: on
// a clone of the result and with the artifacts, so that nothing counts that does not
// come back, and where nothing is that the task could prepare ([attempt.placeOfDone]).
func (r *attempt) runDone(ctx context.Context, secrets []string, out *outcome) error {
	r.event("checking", fmt.Sprintf("%d done commands", len(r.spec.Done)))
	at, end, err := r.placeOfDone(ctx, out.place)
	if err != nil {
		return err
	}
	defer end()
	for i, w := range r.spec.Workspaces() {
		git, dir := r.gitOf(w)
		if err := git.Recheckout(ctx, dir, sourceOf(w), out.collected[i].Commit, at.work); err != nil {
			return workspaceError(ofWorkspace(w, err))
		}
	}
	if r.spec.Workspace != nil {
		if err := r.placeArtifacts(ctx, at.work); err != nil {
			return workspaceError(err)
		}
	}
	task := r.spec.Network
	r.spec.Network = task.Phase(r.spec.DonePhase())
	defer func() { r.spec.Network = task }()
	c, _, err := r.open(ctx, at, r.spec.DonePhase())
	if err != nil {
		return err
	}
	defer r.close(c)
	if err := r.send(ctx, c, at); err != nil {
		return err
	}
	stdout, stderr, closeLogs, err := r.openLogs(store.FileDoneStdout, store.FileDoneStderr)
	if err != nil {
		return err
	}
	defer closeLogs()
	deadline := r.deadline(out.started)
	env := append(batch.Passed(os.Environ()), r.taskEnv(secrets, deadline)...)
	for _, cmd := range r.spec.Done {
		_, _ = io.WriteString(stderr, "+ "+commandText(cmd)+"\n")
		p, err := c.Session().Start(session.StartRequest{Command: cmd, Env: env, Dir: r.workIn(c, at.work)}, stdout, stderr)
		if err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "start a done command", Err: err}
		}
		res, err := r.supervise(c, p, deadline)
		if err != nil {
			return err
		}
		if !res.Exit.OK() {
			r.heed(res.Exit)
			if err := r.abandoned(c, res.Unpinged); err != nil {
				return err
			}
		}
		out.done = append(out.done, jobs.DoneResult{Command: cmd, Exit: res.Exit})
		if !res.Exit.OK() || r.stop.Why() != nil {
			return nil
		}
	}
	return nil
}
