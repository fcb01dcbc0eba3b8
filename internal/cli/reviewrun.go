package cli

import (
	"context"
	"fmt"
	"strings"

	"berth/engine"
	"berth/internal/config"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) reviewRunCmd() *cobra.Command {
	var onto, agent, model string
	c := &cobra.Command{
		Use: "run JOB", Short: "run the done commands again, from the branch alone, in a fresh place",
		Long: `Run the done commands of a job again, as a job of its own: in the same kind of place, in
a fresh container, from the tree that the target branch would have and nothing else of
the task's. How that went is recorded with the tree. Without a container (--backend
local) the checks run with your own rights on a host that the task could change, which
is said. With --agent, or review.agent of the configuration, an agent looks at the tree
instead, read-only, and its advice is recorded; --agent none runs the checks. Ctrl-C
leaves the run's job running, and records nothing.
` + exitHelp + `0 all passed, or there is advice; 1 one failed, or there is none of the form
that was asked for; 2 there is nothing to run, 3 no such job or branch, 5 berth
or the site failed, 78 its containment was not available, 130 ctrl-C.`,
		Example: "  berth review run 0a1b2c3d\n  berth review run 0a1b2c3d --onto release\n  berth review run 0a1b2c3d --agent claude",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, rec, err := a.reviewJob(cmd, ids)
			if err != nil {
				return err
			}
			if agent == "" {
				cfg, err := a.config(cmd)
				if err != nil {
					return err
				}
				agent = cfg.Reviewer()
			}
			if agent != "" && agent != config.NoReviewer {
				return a.adviseReview(cmd, e, rec, onto, agent, model)
			}
			child, rv, err := e.RunReview(cmd.Context(), rec, onto)
			if err != nil {
				return err
			}
			return a.watchReview(cmd.Context(), e, rv, child)
		},
	}
	c.Flags().StringVar(&onto, "onto", "", ontoHelp)
	c.Flags().StringVar(&agent, "agent", "", "have the agent `NAME` look at it, "+
		"for advice; none: run the checks (default: review.agent of the configuration)")
	c.Flags().StringVar(&model, "model", "", "the `MODEL` of that agent")
	a.jsonFlag(c)
	return c
}

// adviseReview has an agent look at a result, and shows what it says.
func (a *app) adviseReview(cmd *cobra.Command, e *engine.Engine, rec *jobs.Record, onto, agent, model string) error {
	cfg, err := a.config(cmd)
	if err != nil {
		return err
	}
	t := jobs.Task{Agent: &jobs.Agent{Name: agent, Model: model}}
	t.Caps = rec.Spec.Caps
	if err := cfg.Agent(&t); err != nil {
		return err
	}
	child, rv, err := e.AskReviewer(cmd.Context(), rec, onto, engine.Reviewer{Agent: *t.Agent, Command: t.Command, Env: t.Env})
	if err != nil {
		return err
	}
	a.sayReview(rv)
	a.say("job %s: agent %s looks at it in %s (containment: %s)", jobs.Short(child.Spec.ID), agent, child.Spec.Backend, child.Spec.Level)
	views, err := a.awaitReview(cmd.Context(), e, rv, child)
	if err != nil {
		return err
	}
	v, err := e.ReviewerSaid(rv, views[0].Record)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(map[string]any{"advice": v, "review": reviewOf(rv)})
	} else {
		var rows [][2]string
		for _, p := range rv.All() {
			rows = append(rows, [2]string{"tree", strings.TrimPrefix(p.Workspace+": "+p.Tree, ": ")})
		}
		err = a.rows(append(rows, a.adviceRows(v)...))
	}
	if err != nil || v.Problem == "" {
		return err
	}
	a.say("what it wrote: berth logs %s", jobs.Short(child.Spec.ID))
	return exitCode(jobs.CodeTaskFailed)
}

// adviceRows are what an agent says.
func (a *app) adviceRows(v *jobs.ReviewAdvice) [][2]string {
	says := v.Verdict + ", which is advice alone"
	if v.Problem != "" {
		says = "none: " + v.Problem
	}
	rows := [][2]string{{"advice", fmt.Sprintf("%s: %s (job %s, %s)", v.Agent, says, jobs.Short(v.Job), a.when(v.Time))}}
	for _, p := range v.Points {
		rows = append(rows, [2]string{"advice point", fmt.Sprintf("%d met: %s: %s", p.Point, p.Met, p.Why)})
	}
	for _, f := range v.Findings {
		at := f.File
		if f.Line > 0 {
			at += fmt.Sprintf(":%d", f.Line)
		}
		rows = append(rows, [2]string{"advice finding", at + ": " + f.Text})
	}
	return rows
}

// awaitReview waits for the job of a run.
func (a *app) awaitReview(ctx context.Context, e *engine.Engine, rv *engine.Review, child *jobs.Record) ([]engine.View, error) {
	stop := a.relays(ctx, e, child)
	views, err := e.WaitAll(ctx, []string{child.Spec.ID}, a.reached())
	stop()
	if interrupted(ctx, err) {
		short := jobs.Short(rv.Record.Spec.ID)
		a.say("left job %s running; nothing was recorded: berth review run %s does it again", jobs.Short(child.Spec.ID), short)
		return nil, exitCode(jobs.CodeInterrupted)
	}
	if err == nil {
		a.warn(views)
	}
	return views, err
}

// watchReview waits for the run's job, shows what its checks wrote, and records how they
// went.
func (a *app) watchReview(ctx context.Context, e *engine.Engine, rv *engine.Review, child *jobs.Record) error {
	short := jobs.Short(child.Spec.ID)
	a.sayReview(rv)
	a.say("job %s runs its done commands in %s (containment: %s)", short, child.Spec.Backend, child.Spec.Level)
	if child.Spec.Level == jobs.LevelNone {
		a.say("level none: the checks have your own rights, on a host that the task could change")
	}
	views, err := a.awaitReview(ctx, e, rv, child)
	if err != nil {
		return err
	}
	run, err := e.ReviewRan(rv, views[0].Record)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(map[string]any{"run": run, "review": reviewOf(rv)})
	} else {
		err = a.printRun(run)
	}
	if err != nil || run.OK {
		return err
	}
	a.say("what they wrote: berth logs --done %s", short)
	if x := views[0].Current().Exit; x != nil && x.State == jobs.StateError {
		if x.Hint != "" {
			a.say("hint: %s", x.Hint)
		}
		return exitCode(x.Code)
	}
	if run.State != jobs.StateCompleted && run.State != jobs.StateFailed {
		return exitCode(jobs.CodeOfRecord(views[0].Record))
	}
	return exitCode(jobs.CodeTaskFailed)
}

func (a *app) printRun(run *jobs.ReviewRun) error {
	word := "passed"
	if !run.OK {
		word = "failed"
	}
	rows := [][2]string{{"run", word}, {"tree", run.Tree}, {"job", jobs.Short(run.Job)}}
	for _, d := range run.Done {
		rows = append(rows, [2]string{"done", commandText(d.Command) + ": " + d.Exit.String()})
	}
	if run.Reason != "" && !run.OK {
		rows = append(rows, [2]string{"reason", run.Reason})
	}
	if run.Over != "" {
		rows = append(rows, [2]string{"checked over", run.Over})
	}
	return a.rows(rows)
}
