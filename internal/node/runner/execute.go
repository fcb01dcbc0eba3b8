package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/config/sitefile"
	"berth/internal/link/session"
	"berth/internal/network/credentials"
	"berth/internal/node/batch"
	"berth/internal/node/container"
	"berth/internal/node/supervise"
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
	left    *jobs.LeftRunning
	result  *jobs.Result
	// collected is the same for the repositories, in the order of the job's; nil without a result.
	collected []workspace.Result
	done      []jobs.DoneResult
	arts      []string
	place     *place
	kept      bool // the task's files stay in the attempt's directory
	artFiles  int
	artBytes  jobs.Bytes
	leftOut   []jobs.Omission
	keptTree  *jobs.KeptTree
	agent     *jobs.AgentUse
}

// execute prepares the place, runs the task's command and collects what it
// left. Stopped before the command began, it returns errStopped.
func (r *attempt) execute(parent context.Context) (out *outcome) {
	out = &outcome{}
	ctx, cancel := r.stop.Context(parent)
	defer cancel()
	fail := func(err error) *outcome {
		if r.stop.Why() != nil {
			err = errStopped
		}
		out.err = err
		return out
	}
	names := append(slices.Clone(r.spec.EnvNames), credentials.Variables(r.spec.Credentials)...)
	secrets, err := store.TakeSecrets(r.jobDir, names, r.spec.Retry != nil)
	if err != nil {
		return fail(err)
	}
	if secrets, err = r.takeCredentials(secrets); err != nil {
		return fail(err)
	}
	if err := r.carry(); err != nil {
		return fail(err)
	}
	secrets, r.keys = r.ofTask(secrets)
	if store.Cancelled(r.jobDir) {
		r.stop.set(why{state: jobs.StateCancelled, reason: "cancelled before it started"})
		return fail(errStopped)
	}
	if err := r.gate(ctx); err != nil {
		return fail(err)
	}
	if err := r.bySite(); err != nil {
		return fail(err)
	}
	prompt, err := store.Prompt(r.jobDir, r.spec.PromptBytes)
	if err != nil {
		return fail(err)
	}
	r.cgroup = container.OwnCgroup("/proc/self/cgroup", "/sys/fs/cgroup")
	r.jobCgroup = r.cgroup.ForJob(r.batch, r.claim.NativeID)
	r.ooms = r.jobCgroup.OOMKills()
	if out.place, err = r.prepare(ctx); err != nil {
		return fail(err)
	}
	for _, w := range r.spec.Workspaces() {
		if err := r.takeUp(ctx, w); err != nil {
			return fail(workspaceError(ofWorkspace(w, err)))
		}
	}
	if err := r.cloned(ctx); err != nil {
		return fail(workspaceError(err))
	}
	if r.ranked() {
		r.watchSpace(ctx, &place{})
		err = r.runRanks(ctx, secrets, out)
	} else {
		r.watchMemory(ctx)
		r.watchSpace(ctx, out.place)
		err = r.runAgent(ctx, secrets, prompt, out)
		r.tellKept(parent)
	}
	// Whatever ended the command, what it had done by then is its user's.
	if r.spec.Workspace != nil && !out.started.IsZero() && (r.far == nil || !r.far.keep) {
		r.collect(parent, out)
	}
	if err != nil {
		return fail(err)
	}
	if out.err == nil && out.exit.OK() && r.stop.Why() == nil && len(r.spec.Done) > 0 {
		if err := r.runDone(ctx, secrets, out); err != nil {
			return fail(err)
		}
	}
	return out
}

// bySite refuses an attempt that this machine's own site file forbids: the job may have
// been planned where there is another one, or none.
func (r *attempt) bySite() error {
	site, err := sitefile.Read()
	if err != nil {
		return err
	}
	return site.HoldHere(&r.spec.Place, r.spec.Pulls())
}

// ofTask parts the passed values: those that the task is to have, and those of
// the program of its backend.
func (r *attempt) ofTask(secrets []string) (task, keys []string) {
	if r.spec.External == nil {
		return secrets, nil
	}
	for _, kv := range secrets {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains(r.spec.EnvNames, name) {
			task = append(task, kv)
		}
	}
	return task, secrets // what both have is the same
}

// line renders the command line of one container, right before it starts.
func (r *attempt) line(p *place) ([]string, error) {
	if r.opening.Line == nil {
		return r.opening.Argv, nil
	}
	at := jobs.LineAt{Guest: r.node, Scratch: p.scratch.Dir, Work: p.work}
	if p.layer != nil {
		at.Layer = p.layer.Path
	}
	argv, notes, err := r.opening.Line(at)
	for _, n := range notes {
		r.note(n)
	}
	return argv, err
}

// runAgent runs the task's command to its end, or to the end of its time.
func (r *attempt) runAgent(ctx context.Context, secrets []string, prompt []byte, out *outcome) error {
	c, argv, err := r.open(ctx, out.place, "")
	if argv != nil {
		if _, serr := store.SetArgv(r.dir, argv); err == nil && serr != nil {
			r.close(c)
			err = serr
		}
	}
	if err != nil {
		return err
	}
	defer r.close(c)
	r.askAgent(ctx, c)
	if err := r.writeReceipt(c, argv, out.place); err != nil {
		return err
	}
	if err := r.send(ctx, c, out.place); err != nil {
		return err
	}
	stdout, stderr, closeLogs, err := r.openLogs(store.FileStdout, store.FileStderr)
	if err != nil {
		return err
	}
	defer closeLogs()
	out.started = time.Now().UTC()
	deadline, stopAt := r.deadline(out.started), r.stopTime(out.started)
	until := deadline
	if !stopAt.IsZero() && stopAt.Before(until) {
		until = stopAt
	}
	more := r.egress.Load().Inside(c.Session())
	env := slices.Concat(batch.Passed(os.Environ()), r.taskEnv(secrets, until), more)
	r.recordInside(c, slices.Concat(batch.Passed(os.Environ()), r.taskEnv(nil, until), more))
	r.furnish(ctx, c, env)
	watch := r.watch()
	toOut, toErr := watch.outputs(stdout, stderr)
	r.event("started", "")
	r.stopAt, r.hook = stopAt, r.hookIn(c, env)
	r.working.Store(true) // before its first word: who reads that may send a signal at once
	start := func(command jobs.Command, prompt []byte) (*session.Process, error) {
		p, err := c.Session().Start(session.StartRequest{Command: command, Env: env, Dir: r.workDir(c), Prompt: prompt, Left: true}, toOut, toErr)
		if err != nil {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "start the command", Err: err}
		}
		return p, nil
	}
	p, err := start(r.agentCommand(watch, prompt))
	if err != nil {
		r.working.Store(false)
		r.stopAt, r.hook = time.Time{}, nil
		return err
	}
	debug.FreeOSMemory() // for hours it has little to do, beside a job that counts every page
	endCheckpoints := r.checkpoints(out.started)
	holding, endHold := context.WithCancel(ctx)
	go watch.hold(holding)
	res, err := r.supervise(c, p, deadline)
	if err == nil && watch.lost(res.Exit) {
		if p, err = start(r.spec.Command, prompt); err == nil {
			res, err = r.supervise(c, p, deadline)
		}
	}
	r.working.Store(false)
	endHold()
	endCheckpoints()
	out.agent = watch.end(res.Exit)
	r.stopAt, r.hook = time.Time{}, nil
	if err == nil {
		err = r.fetch(ctx, c)
	} else if r.far != nil && r.spec.Workspace != nil {
		r.far.keep = true
	}
	if err != nil {
		return err
	}
	out.exit, out.maxRSS, out.left = res.Exit, res.MaxRSS, res.Left
	r.boxOOMs = r.box.OOMKills() // its cgroup ends with the container
	r.heed(res.Exit)
	r.full(ctx, c, out.place, res.Exit, r.stderrFile())
	if err := r.abandoned(c, res.Unpinged); err != nil {
		return err
	}
	if res.Output != nil {
		r.note("some output was lost: " + res.Output.Error())
	}
	return nil
}

// supervise waits for the command, and ends it for a reason or at the deadline.
func (r *attempt) supervise(c *container.Container, p *session.Process, deadline time.Time) (session.Result, error) {
	var res session.Result
	var err error
	ended := make(chan struct{})
	go func() {
		res, err = p.Wait()
		close(ended)
	}()
	watch, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	go c.WatchFuse(watch, func(name string) { r.stop.set(r.lostFuse(name)) })
	r.follow(ended, deadline, func(grace time.Duration) {
		if err := p.Terminate(grace); err != nil {
			c.ForceEnd()
		}
	}, 2*time.Second, func() {
		r.log.Warn("the guest did not end the command; ending the container")
		c.ForceEnd()
	})
	if err != nil {
		if r.stop.Why() != nil {
			return session.Result{Exit: jobs.Exit{Started: true, Code: 137, Signal: 9}}, nil
		}
		return session.Result{}, r.guestGone(c, err)
	}
	if name := c.LostFuse(!res.Exit.OK()); name != "" {
		if !res.Exit.OK() {
			r.heed(res.Exit) // a TERM to all may have ended it, and reaches this process last
		}
		r.stop.set(r.lostFuse(name))
	} else if fileSystemGone(res.Exit) {
		r.stop.set(why{state: jobs.StateError, fuse: true,
			reason: "the container's file system died: the command " + res.Exit.String(),
			hint:   "see berth logs --runtime " + jobs.Short(r.spec.ID)})
	}
	return res, nil
}

// follow waits for an end. It asks for it with end, for a reason or at the
// deadline, and calls force when nothing has come of that for patience after
// the grace.
func (r *attempt) follow(ended <-chan struct{}, deadline time.Time, end func(grace time.Duration), patience time.Duration, force func()) {
	go r.watchTime(ended, r.stopAt, deadline)
	supervise.Await(ended, r.stop.Done(), func() time.Duration {
		w := r.stop.Why()
		r.event("ending", w.reason)
		if w.point && r.hook != nil { // the command may end meanwhile: the hook has asked it to, and goes on saving
			r.hook(context.Background(), "stop", r.hookTime(w))
		}
		grace := r.grace()
		select {
		case <-ended:
		default:
			end(grace)
		}
		return grace + patience
	}, force)
}

// watchTime sets the reason to stop when the time is up, until ended is closed.
func (r *attempt) watchTime(ended <-chan struct{}, stopAt, deadline time.Time) {
	var warn, limit, point <-chan time.Time
	if !stopAt.IsZero() {
		point = time.After(time.Until(stopAt))
	}
	if !deadline.IsZero() {
		left := time.Until(deadline)
		limit = time.After(left)
		warn = time.After(left - margin(left))
	}
	stood := false
	// up sets the reason, unless the command has ended in the same moment. It looks
	// once more for an end that is older than a time which has passed: this process
	// stood still, and the end waits in the stream.
	up := func(due time.Time, w why) (again <-chan time.Time) {
		if !stood && time.Since(due) >= time.Second {
			stood = true
			return time.After(time.Second)
		}
		select {
		case <-ended:
		default:
			r.stop.set(w)
		}
		return nil
	}
	for {
		select {
		case <-ended:
			return
		case <-point:
			point = up(stopAt, r.timeUp())
		case <-warn:
			r.event("time_warning", "the time limit is at "+deadline.Format(time.RFC3339))
			warn = nil
		case <-limit:
			w := why{state: jobs.StateTimeout, point: r.spec.Resume != nil, reason: "its time limit passed", hint: "raise [resources] time"}
			if point != nil { // due before: this process stood still meanwhile
				w = r.timeUp()
			}
			limit = up(deadline, w)
		}
	}
}

// hurried is a usual time, such as the one between TERM and KILL, or what the
// scheduler leaves of it, less what the end itself needs.
func (r *attempt) hurried(d time.Duration) time.Duration {
	if w := r.stop.Why(); w != nil && w.hurry > 0 {
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
	if c.Abandoned() {
		return r.abandoned(c, true)
	}
	if sig := c.GuestKilled(); sig != 0 {
		r.stop.set(why{state: jobs.StateFailed, class: jobs.ClassTask,
			reason: fmt.Sprintf("berth's own process in the container was killed (signal %d), "+
				"by the task or by another process of its user's, and with it the command", sig),
			hint: "have the task end its own processes by their numbers, and not all that there are, as kill -1 and pkill -u do"})
		return errStopped
	}
	return &jobs.Error{Kind: jobs.KindInfra, Blame: jobs.BlameOther, Msg: "the container ended before its command did", Err: err,
		Hint: "see " + filepath.Join(r.dir, store.FileRuntime)}
}

// workDir is where commands run: the workspace, else their HOME.
func (r *attempt) workDir(c *container.Container) string { return r.workIn(c, r.work()) }

// workIn is the same where the work tree is another one.
func (r *attempt) workIn(c *container.Container, tree string) string {
	switch {
	case r.spec.Workspace == nil:
		return c.Session().Guest().Home
	case r.far != nil:
		return r.far.work(c)
	case r.opening.Work != "":
		return r.opening.Work
	}
	return tree
}

// taskEnv are the variables of the task, the same everywhere; what the
// scheduler gives this process is put beneath them.
func (r *attempt) taskEnv(secrets []string, deadline time.Time) []string {
	env := []string{"BERTH_JOB_ID=" + r.spec.ID, "BERTH_ATTEMPT=" + r.info.ID, "BERTH_ATTEMPT_NUMBER=" + strconv.Itoa(r.info.Number)}
	if from := r.info.Change.Resume; from != nil {
		env = append(env, "BERTH_RESUMED="+strconv.Itoa(from.Attempt))
	}
	if !deadline.IsZero() {
		env = append(env, "BERTH_DEADLINE="+deadline.UTC().Format(time.RFC3339))
	}
	if r.spec.Reaches().Open() || r.far != nil { // else the site's proxy is not there, and the proxy door's variables count
		env = append(env, r.spec.Profile.Proxy.Environ()...)
	}
	env = append(env, r.spec.Env...)
	return append(env, secrets...)
}

// cleanup ends the use of the place; after it nothing of the attempt is left
// on the node.
func (r *attempt) cleanup(out *outcome) {
	r.layer.Store(nil)
	r.cleanFar()
	supervise.GiveBack(r.scratch, out.place.close, r.note)
	for _, w := range r.spec.Workspaces() {
		if out.kept {
			break
		}
		if err := workspace.Cleanup(jobs.ResultDir(r.dir, w.Name)); err != nil {
			r.note("the clone was not removed: " + err.Error())
		}
	}
	if r.spec.Retry == nil {
		store.DropSecrets(r.jobDir)
	}
}

// workspaceError gives the workspace's errors their kind and hint.
func workspaceError(err error) error {
	var we *workspace.Error
	if errors.As(err, &we) {
		e := &jobs.Error{Kind: jobs.KindInfra, Msg: we.Error(), Hint: we.Hint()}
		if errors.Is(err, workspace.ErrNotRepository) || errors.Is(err, workspace.ErrUnknownBase) {
			e.Blame = jobs.BlameOther
		}
		return e
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the workspace", Err: err}
}
