package cli

import (
	"context"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) reviewRunCmd() *cobra.Command {
	var onto string
	c := &cobra.Command{
		Use: "run JOB", Short: "run the done commands again, from the branch alone, in a fresh place",
		Long: `Run the done commands of a job again, as a job of its own: in the same kind of place, in
a fresh container, from the tree that the target branch would have and nothing else of
the task's. How that went is recorded with the tree. Without a container (--backend
local) the checks run with your own rights on a host that the task could change, which
is said. Ctrl-C leaves the run's job running, and records nothing.
` + exitHelp + `0 all passed, 1 one failed, 2 there is nothing to run, 3 no such job or branch, 5 berth
or the site failed, 78 its containment was not available, 130 ctrl-C.`,
		Example: "  berth review run 0a1b2c3d\n  berth review run 0a1b2c3d --onto release",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, rec, err := a.reviewJob(cmd, ids)
			if err != nil {
				return err
			}
			child, rv, err := e.RunReview(cmd.Context(), rec, onto)
			if err != nil {
				return err
			}
			return a.watchReview(cmd.Context(), e, rv, child)
		},
	}
	c.Flags().StringVar(&onto, "onto", "", ontoHelp)
	a.jsonFlag(c)
	return c
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
	stop := a.relays(ctx, e, child)
	views, err := e.WaitAll(ctx, []string{child.Spec.ID}, a.reached())
	stop()
	if interrupted(ctx, err) {
		a.say("left job %s running; nothing was recorded: berth review run %s runs them again", short, jobs.Short(rv.Record.Spec.ID))
		return exitCode(jobs.CodeInterrupted)
	}
	if err != nil {
		return err
	}
	a.warn(views)
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
