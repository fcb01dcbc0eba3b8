package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"berth/internal/container"
	"berth/internal/session"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// outcome is what execute found; conclude makes the exit record of it.
type outcome struct {
	err     error // berth or the site failed
	exit    jobs.Exit
	started time.Time
	maxRSS  jobs.Bytes
	result  *jobs.Result
	done    []jobs.DoneResult
	arts    []string
	place   *place
	kept    bool // the task's files stay in the attempt's directory
}

// execute prepares the place, runs the task's command and collects what it
// left. Stopped before the command began, it returns errStopped.
func (r *attempt) execute(parent context.Context) (out *outcome) {
	out = &outcome{}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	go func() { // a reason to stop ends the preparation
		select {
		case <-r.stop.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	fail := func(err error) *outcome {
		if r.stop.get() != nil {
			err = errStopped
		}
		out.err = err
		return out
	}
	secrets, err := store.TakeSecrets(r.dir)
	if err != nil {
		return fail(err)
	}
	if store.Cancelled(r.jobDir) {
		r.stop.set(why{state: jobs.StateCancelled, reason: "cancelled before it started"})
		return fail(errStopped)
	}
	prompt, err := store.Prompt(r.jobDir)
	if err != nil {
		return fail(err)
	}
	r.cgroup = container.OwnCgroup("/proc/self/cgroup", "/sys/fs/cgroup")
	r.jobCgroup = r.cgroup.ForJob(r.claim.NativeID)
	r.ooms = r.jobCgroup.OOMKills()
	if out.place, err = r.prepare(ctx); err != nil {
		return fail(err)
	}
	git := r.git()
	var src workspace.Source
	if w := r.spec.Workspace; w != nil {
		src = workspace.Source{Repo: w.GitDir, Top: w.Repo, Base: w.Base, Branch: w.BaseRef}
		r.event("cloning", src.Repo+" at "+src.Base)
		if _, err := git.Prepare(ctx, src, r.dir); err != nil {
			return fail(workspaceError(err))
		}
	}
	argv := r.finalArgv(out.place)
	if _, err := store.SetArgv(r.dir, argv); err != nil {
		return fail(err)
	}
	r.watchMemory(ctx)
	err = r.runAgent(ctx, argv, secrets, prompt, out)
	// Whatever ended the command, what it had done by then is its user's.
	if r.spec.Workspace != nil && !out.started.IsZero() && (r.far == nil || !r.far.keep) {
		r.collect(parent, git, src, out)
	}
	if err != nil {
		return fail(err)
	}
	if out.err == nil && out.exit.OK() && r.stop.get() == nil && len(r.spec.Done) > 0 {
		if err := r.runDone(ctx, git, src, secrets, out); err != nil {
			return fail(err)
		}
	}
	return out
}

// finalArgv fills the holes. A throw-away place on the bare host has none.
func (r *attempt) finalArgv(p *place) []string {
	if r.docker != nil {
		return r.docker.Argv
	}
	if r.far != nil {
		return r.far.argv
	}
	holes := map[string]string{jobs.HoleScratch: r.scratch.Workdir(), jobs.HoleImage: r.spec.Image}
	if p.layer != nil {
		holes[jobs.HoleOverlay] = p.layer.Path
	}
	return expand(r.argv, holes, p.program)
}

// runAgent runs the task's command to its end, or to the end of its time.
func (r *attempt) runAgent(ctx context.Context, argv, secrets []string, prompt []byte, out *outcome) error {
	c, err := r.openContainer(ctx, argv)
	if err != nil {
		return err
	}
	defer r.close(c)
	if err := r.send(ctx, c); err != nil {
		return err
	}
	stdout, err := r.openLog(store.FileStdout)
	if err != nil {
		return err
	}
	defer stdout.close()
	stderr, err := r.openLog(store.FileStderr)
	if err != nil {
		return err
	}
	defer stderr.close()
	out.started = time.Now().UTC()
	deadline := r.deadline(out.started)
	env := r.taskEnv(secrets, deadline)
	r.event("started", "")
	p, err := c.Session().Start(session.StartRequest{Command: r.spec.Command, Env: env, Dir: r.workDir(c), Prompt: prompt}, stdout, stderr)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "start the command", Err: err}
	}
	debug.FreeOSMemory() // for hours it has little to do, beside a job that counts every page
	res, err := r.supervise(c, p, deadline)
	if err == nil {
		err = r.fetch(ctx, c)
	} else if r.far != nil && r.spec.Workspace != nil {
		r.far.keep = true
		r.note(fmt.Sprintf("the task's files are kept on %s in ~/%s/work", r.far.host, r.far.dir))
	}
	if err != nil {
		return err
	}
	out.exit, out.maxRSS = res.Exit, res.MaxRSS
	r.boxOOMs = r.box.OOMKills() // its cgroup ends with the container
	r.heed(res.Exit)
	if err := r.abandoned(c); err != nil {
		return err
	}
	if res.Output != nil {
		r.note("some output was lost: " + res.Output.Error())
	}
	return nil
}

// supervise waits for the command, and ends it for a reason or at the deadline.
func (r *attempt) supervise(c *container.Container, p *session.Process, deadline time.Time) (session.Result, error) {
	type answer struct {
		res session.Result
		err error
	}
	ended := make(chan answer, 1)
	go func() {
		res, err := p.Wait()
		ended <- answer{res, err}
	}()
	watch, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	go c.WatchFuse(watch, func(name string) { r.stop.set(r.lostFuse(name)) })
	var warn, limit <-chan time.Time
	if !deadline.IsZero() {
		left := time.Until(deadline)
		limit = time.After(left)
		warn = time.After(left - margin(left))
	}
	stop := r.stop.done
	var kill <-chan time.Time
	for {
		select {
		case a := <-ended:
			if a.err != nil {
				if w := r.stop.get(); w != nil {
					return session.Result{Exit: jobs.Exit{Started: true, Code: 137, Signal: 9}}, nil
				}
				return session.Result{}, r.guestGone(c, a.err)
			}
			if name := c.LostFuse(); name != "" {
				r.stop.set(r.lostFuse(name))
			}
			return a.res, nil
		case <-warn:
			r.event("time_warning", "the time limit is at "+deadline.Format(time.RFC3339))
			warn = nil
		case <-limit:
			limit = nil
			r.stop.set(why{state: jobs.StateTimeout, reason: "its time limit passed", hint: "raise [resources] time"})
		case <-stop:
			stop = nil
			w := r.stop.get()
			r.event("ending", w.reason)
			grace := r.hurried(r.times.grace)
			if err := p.Terminate(grace); err != nil {
				c.ForceEnd()
			}
			kill = time.After(grace + 2*time.Second)
		case <-kill:
			kill = nil
			r.log.Warn("the guest did not end the command; ending the container")
			c.ForceEnd()
		}
	}
}

// hurried is a usual time, such as the one between TERM and KILL, or what the
// scheduler leaves of it, less what the end itself needs.
func (r *attempt) hurried(d time.Duration) time.Duration {
	if w := r.stop.get(); w != nil && w.hurry > 0 {
		return min(d, max(w.hurry-3*time.Second, time.Second))
	}
	return d
}

// guestGone explains a stream that closed before the command's end was told.
func (r *attempt) guestGone(c *container.Container, err error) error {
	select {
	case <-c.Ended():
	case <-time.After(2 * time.Second):
	}
	r.heed(jobs.Exit{})
	if r.oomKills() > 0 {
		r.stop.set(why{state: jobs.StateOutOfMemory, reason: "the container was killed for memory", hint: "raise [resources] memory"})
		return errStopped
	}
	if text := c.Troubles(); text != "" {
		err = errors.New(text)
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the container ended before its command did", Err: err, Hint: "see " + filepath.Join(r.dir, store.FileRuntime)}
}

// workDir is where commands run: the workspace, else their HOME.
func (r *attempt) workDir(c *container.Container) string {
	switch {
	case r.spec.Workspace == nil:
		return c.Session().Guest().Home
	case r.far != nil:
		return r.far.work(c)
	case r.spec.Backend == jobs.BackendLocal:
		return filepath.Join(r.dir, "work")
	}
	return "/work"
}

// passedOn are the scheduler's variables that a task may see: what it was
// given, and nothing that reaches back into the cluster.
var passedOn = []string{"SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", "SLURM_JOB_NUM_NODES", "SLURM_JOB_GPUS",
	"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"}

func (r *attempt) taskEnv(secrets []string, deadline time.Time) []string {
	env := []string{"BERTH_JOB_ID=" + r.spec.ID, "BERTH_ATTEMPT=" + r.info.ID}
	if !deadline.IsZero() {
		env = append(env, "BERTH_DEADLINE="+deadline.UTC().Format(time.RFC3339))
	}
	for _, n := range passedOn {
		if v := os.Getenv(n); v != "" {
			env = append(env, n+"="+v)
		}
	}
	env = append(env, r.spec.Env...)
	return append(env, secrets...)
}

// cleanup ends the use of the place; after it nothing of the attempt is left
// on the node.
func (r *attempt) cleanup(out *outcome) {
	if out.place != nil && out.place.layer != nil {
		if err := out.place.layer.Close(); err != nil {
			r.note("the overlay could not be given back: " + err.Error())
		}
	}
	if r.far != nil {
		if err := r.far.clean(); err != nil {
			r.note(fmt.Sprintf("~/%s was not removed on %s: %v", r.far.dir, r.far.host, err))
		}
	}
	if r.scratch != nil {
		if err := r.scratch.Remove(); err != nil {
			r.note("the scratch directory was not removed: " + err.Error())
		}
	}
	if r.spec.Workspace != nil && !out.kept {
		if err := workspace.Cleanup(r.dir); err != nil {
			r.note("the clone was not removed: " + err.Error())
		}
	}
	store.DropSecrets(r.dir)
}

// workspaceError gives the workspace's errors their kind and hint.
func workspaceError(err error) error {
	var we *workspace.Error
	if errors.As(err, &we) {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: we.Error(), Hint: we.Hint()}
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the workspace", Err: err}
}
