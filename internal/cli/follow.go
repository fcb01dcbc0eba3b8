package cli

import (
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) followCmd() *cobra.Command {
	var tab scrontab
	c := &cobra.Command{
		Use: jobs.VerbFollow + " [ID...]",
		Long: `Look at jobs, without an ID at all that have not ended, and do what is due: record how
an attempt ended, begin the next attempt of a job that may be retried ("retry" of a
task), submit what could not be submitted before. It prints nothing where nothing was
due.

You rarely need it: the runner of an attempt does this at its end, a small Slurm job
does when the runner could not, and so does every command that looks at a job. This
one is for a crontab. Slurm can run it itself where the site allows scrontab.
` + exitHelp + `0 done, or nothing to do, 3 no such job, 5 a scheduler could not be asked or
did not take the next attempt: try again, 78 this site has no scrontab.`,
		Example: `  berth follow                          # all jobs, once
  berth follow --scrontab on            # every ten minutes, by Slurm
  berth follow --scrontab off`,
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
			return e.Follow(cmd.Context(), recs, a.say)
		},
	}
	tab.bind(c)
	return c
}
