package cli

import (
	"berth/internal/remote/follow"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) followCmd() *cobra.Command {
	var reap, ahead, guard bool
	var attempt, looks int
	var tab scrontab
	c := &cobra.Command{
		Use: jobs.VerbFollow + " [ID...]", Short: "do what ended jobs need done next",
		Long: `Look at jobs, all that have not ended without an ID, and do what they need done:
record what became of an attempt, begin the next one of a job that may be tried
again ("retry" of a task), submit what could not be submitted before. The
runner of an attempt does this at its end, a small job that Slurm starts after
it when the runner could not, and every verb that looks at a job; this one is
for a crontab, and says nothing where nothing was to be done.

Slurm can do what a crontab does, where the site allows it (scrontab):

  berth follow --scrontab on            # every ten minutes, for all jobs
  berth follow --scrontab off
` + exitHelp + `0 done, or nothing to do, 3 no such job, 5 a scheduler could not be asked or
did not take the next attempt: try again, 78 this site has no scrontab.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("scrontab") {
				return tab.do(cmd, a, e, ids)
			}
			var recs []*jobs.Record
			if len(ids) > 0 {
				recs, err = find(e, ids)
			} else {
				recs, err = e.Store.ListOpen()
			}
			if err != nil {
				return err
			}
			if reap {
				return follow.Reap(cmd.Context(), e, recs, attempt, looks, a.say)
			}
			switch {
			case ahead:
				return follow.Ahead(cmd.Context(), e, recs)
			case guard:
				follow.Guard(cmd.Context(), e, recs)
				return nil
			}
			return follow.Do(cmd.Context(), e, recs, a.say)
		},
	}
	tab.bind(c)
	fs := c.Flags()
	fs.BoolVar(&reap, "reap", false, "")
	fs.BoolVar(&ahead, "ahead", false, "")
	fs.BoolVar(&guard, "guard", false, "")
	fs.IntVar(&attempt, "attempt", 0, "")
	fs.IntVar(&looks, "looks", 0, "")
	for _, internal := range []string{"reap", "ahead", "guard", "attempt", "looks"} {
		_ = fs.MarkHidden(internal)
	}
	return c
}
