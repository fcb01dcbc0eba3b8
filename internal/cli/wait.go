package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) waitCmd() *cobra.Command {
	var limit string
	c := &cobra.Command{
		Use: "wait ID...",
		Long: `Wait until the jobs have ended, and exit with the first code that is not 0.
` + exitHelp + `0 the job succeeded, 1 the task failed, 5 berth or the site failed, 7 it changed
nothing, 8 still going on when --timeout passed, 9 it changed files outside its
scope, 11 it succeeded and not everything came back, 75 try again, 78 its containment
was not available, 124 its time limit passed, 130 it was cancelled; 2 an ambiguous
id, 3 no such job.`,
		Example: `  berth wait 0a1b2c3d
  berth wait --timeout 1h 0a1b2c3d 4e5f6a7b`,
		Args: someJobs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			recs, err := find(e, ids)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if limit != "" {
				d, err := jobs.ParseDuration(limit)
				if err != nil {
					return usage("--timeout: %v", err)
				}
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, d)
				defer cancel()
			}
			all := make([]string, len(recs))
			for i, r := range recs {
				all[i] = r.Spec.ID
			}
			stop := a.relays(ctx, e, recs...)
			views, err := e.WaitAll(ctx, all, a.reached())
			stop()
			if errors.Is(err, context.DeadlineExceeded) {
				if recs, err = find(e, all); err == nil {
					views = e.Reconcile(cmd.Context(), recs)
				}
			}
			if err != nil {
				return err
			}
			code := 0
			for _, v := range views {
				if c := jobs.CodeOfRecord(v.Record); code == 0 {
					code = c
				}
			}
			a.warn(views)
			if a.json {
				if err := a.list(views); err != nil {
					return err
				}
			} else {
				for _, v := range views {
					a.conclude(v)
				}
			}
			if code != 0 {
				return exitCode(code)
			}
			return nil
		},
	}
	c.Flags().StringVar(&limit, "timeout", "", "wait at most `TIME`, such as 10m (default: no limit)")
	a.jsonFlag(c)
	return c
}

// conclude says in a line or two how a job stands.
// What was noted when it was submitted is not said again.
func (a *app) conclude(v engine.View) {
	v.NetworkUse = engine.NetworkUse(v.Record)
	j := viewJSON(v)
	line := "job " + j.Short + " " + string(j.State)
	if j.Reason != "" && j.Reason != string(j.State) {
		line += ": " + j.Reason
	}
	a.say("%s", line)
	for _, row := range j.refusedRows() {
		a.say("%s", row[1])
	}
	if u := j.NetworkUse; u != nil && len(u.Refused) > 0 && len(j.RefusedLast) == 0 {
		a.say("network: %s", j.networkRow())
	}
	if j.Hint != "" {
		a.say("hint: %s", j.Hint)
	}
	if x := v.Current().Exit; x != nil {
		for _, n := range x.Notes {
			a.say("note: %s", n)
		}
	}
	for _, n := range j.NotHere {
		a.say("not here: %s", n)
	}
	if v.Note != "" {
		a.say("note: %s", v.Note)
	}
	if j.Branch != "" && j.BranchHere {
		for _, w := range j.Result.All() {
			if w.Commit != "" {
				branch := strings.TrimSuffix(w.Branch+" of workspace "+w.Workspace, " of workspace ")
				a.say("branch %s: %s, %s", branch, jobs.Plural(w.Files, "file"), sign(w.Insertions, w.Deletions))
			}
		}
	} else if j.Branch != "" && v.Note == "" { // the note says more
		a.say("the branch %s is not in the repository yet; it is kept in %s", j.Branch, j.Dir)
	}
	if r := j.Result; r != nil {
		for _, p := range r.Outside() {
			a.say("out of scope: %s", p)
		}
		if look := r.Suspicious(); len(look) > 0 {
			a.say("look at: %s", strings.Join(look, ", "))
		}
	}
}

func (a *app) runCmd() *cobra.Command {
	var f taskFlags
	var ownCode, raw bool
	c := &cobra.Command{
		Use:        "run [flags] TASK.md | run [flags] -- COMMAND...",
		SuggestFor: []string{"start", "srun"},
		Long: `Submit a task as a job, show its output as it comes, and wait for its end.
Ctrl-C leaves the job running and says how to come back; a second one cancels it.

` + taskHelp + `

` + rawHelp + `
With --learn the task reaches every name, on usual ports, whatever its [network] says, but
for what a project, profile or site refuses. At the end the list is printed that would
have been enough (berth network show --learned prints it again), and what it cannot
know of. Private addresses stay refused.
` + exitHelp + `as for berth wait, and 130 when ctrl-C left it running; with --exit-code
the command's own exit code.`,
		Example: `  berth run task.md
  berth run --image docker://python:3.12 -- 'python3 -c "print(6*7)"'
  berth run --image py.sif --workspace . -- 'pytest -x && ruff check'
  berth run --image py.sif --gpus 1 --memory 16GiB --time 2h -- python3 train.py`,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, rec, err := a.submit(cmd, &f, args)
			if err != nil {
				return err
			}
			return a.watch(cmd.Context(), e, rec, ownCode, raw)
		},
	}
	f.add(c)
	f.addKey(c)
	c.Flags().BoolVar(&f.learn, "learn", false, "allow every name, and print at the end which were needed")
	c.Flags().BoolVar(&ownCode, "exit-code", false, "exit with the exit code of the command")
	rawFlag(c.Flags(), &raw)
	return c
}

// again says why there is another attempt than the first, or will be.
func again(r *jobs.Record) string {
	for i := len(r.Attempts) - 1; i >= 0; i-- {
		a := &r.Attempts[i]
		if d := a.Decision; d != nil && d.Verb == jobs.VerbRetry {
			return fmt.Sprintf("attempt %d ended (%s); attempt %d: %s", a.N, jobs.StateOfAttempt(a), a.N+1, d.Reason)
		}
	}
	return ""
}

// watch shows a job to its end.
func (a *app) watch(ctx context.Context, e *engine.Engine, rec *jobs.Record, ownCode, raw bool) error {
	short := jobs.Short(rec.Spec.ID)
	native := ""
	if sub := rec.Current().Submitted; sub != nil {
		native = sub.Handle.NativeID
	}
	a.say("job %s submitted to %s", short, joinWords(schedulerName(rec.Spec), native))
	defer a.tellWaiting(ctx, rec.Current().Dir)()
	defer a.relays(ctx, e, rec)()
	reached, last := a.reached(), jobs.State("")
	waiting := a.waiting()
	o := engine.LogOptions{Follow: true}
	o.Stdout, o.Stderr = a.shown(raw)
	if a.tty && !raw { // a pipe gets what the command writes
		o.Stdout = a.agentView(&rec.Spec, o.Stdout, eventsShown, "")
	}
	o.See = func(v engine.View) {
		reached(v)
		if waiting(v); v.State == last {
			return
		}
		last = v.State
		switch v.State {
		case jobs.StatePending:
			if why := again(v.Record); why != "" {
				a.say("%s", why)
			}
			a.say("waiting in the queue")
		case jobs.StateRunning:
			a.say("running on %s", v.Current().Claim.Host)
			if len(v.Spec.Ports) > 0 {
				a.say("when its service listens: %s", forwardLine(short, v.Spec.Ports))
			}
		case jobs.StateSubmitting, jobs.StateCompleted, jobs.StateFailed, jobs.StateCancelled,
			jobs.StateTimeout, jobs.StateOutOfMemory, jobs.StateError, jobs.StateLost:
		}
	}
	v, err := showLog(ctx, e, rec, o)
	if interrupted(ctx, err) {
		return a.detach(e, v, short)
	}
	if err != nil {
		return err
	}
	a.warn([]engine.View{v})
	a.conclude(v)
	if v.Spec.Network.Learn {
		a.learned(v)
	}
	code := jobs.CodeOfRecord(v.Record)
	// A command that could not be started has a code too: 126 or 127, as from
	// a shell.
	if x := v.Current().Exit; ownCode && x != nil && (x.Exit.Started || x.Exit.Code != 0) && x.State != jobs.StateError {
		code = x.Exit.Code
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// waiting says why a job waits, and what helps: each reason once, though a job may
// have two by turns.
func (a *app) waiting() func(engine.View) {
	said := map[string]bool{}
	return func(v engine.View) {
		if why := v.Status.Explanation; v.State == jobs.StatePending && v.Asked && v.Status.Hint != "" && !said[why] {
			said[why] = true
			a.say("it %s; %s", why, v.Status.Hint)
		}
	}
}

// second is how long a second ctrl-C is waited for.
var second = 2 * time.Second

// echo is how long what comes after the first is taken for the same one.
const echo = 200 * time.Millisecond

// detach leaves the job running, unless ctrl-C comes a second time.
func (a *app) detach(e *engine.Engine, v engine.View, short string) error {
	again, stop := secondInterrupt()
	defer stop()
	// Some wrappers deliver one ctrl-C twice, to the process and to its group.
	time.Sleep(echo)
	select {
	case <-again:
	default:
	}
	a.say("left job %s running; ctrl-C again within 2 s cancels it", short)
	a.say("to come back: berth logs -f %s    to wait: berth wait %s    to end it: berth cancel %s", short, short, short)
	select {
	case <-again:
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Cancel(ctx, []engine.View{v}, "ctrl-C"); err != nil {
			return err
		}
		a.say("job %s is being cancelled", short)
	case <-time.After(second):
	}
	return exitCode(jobs.CodeInterrupted)
}
