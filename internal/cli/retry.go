package cli

import (
	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) retryCmd() *cobra.Command {
	var o engine.RetryOptions
	c := &cobra.Command{
		Use: "retry ID",
		Long: `Submit the task of a job that has ended once more, as a job of its own, and print its id.
All that was settled for the first one holds: command, prompt, image, limits, network,
and the commit that it started from (--base: another one); flags and the configuration of
today do not. The new job waits for no other one, has a branch of its own, and says whose
retry it is. The first job stays as it is.

--note is appended to its prompt, as a point under "Notes from review"; without it that of
berth review reject, where the result was rejected. A retry of a retry has all notes.
An agent goes on with its own session, where it has an option for that and the files of the
session are still there: in a named overlay, or with --backend local. A note says which.
--new-session begins one all the same.
Variables that are passed on by name and keys of credentials have the values of now.

What berth tries again by itself, after a failure of the site, is another attempt of the
same job: [retry] of berth help task-file.
` + exitHelp + `0 submitted, 2 the job has not ended, or a note has no place, 3 no such job, or
its image or repository is gone, and else as for berth submit.`,
		Example: `  berth retry 0a1b2c3d --note 'the test of empty input is missing'
  berth retry 0a1b2c3d --base main`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs one job id", Hint: "berth ps --all lists the jobs"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := a.config(cmd); err != nil {
				return err
			}
			views, err := a.views(cmd, args, true)
			if err != nil {
				return err
			}
			e, err := a.engine()
			if err != nil {
				return err
			}
			rec, err := a.retryJob(cmd, e, views[0].Record, o)
			if rec != nil && (err == nil || jobs.KindOf(err) == jobs.KindUnclear) {
				if perr := a.printID(rec); perr != nil {
					return perr
				}
			}
			return err
		},
	}
	c.Flags().StringVar(&o.Note, "note", "", "append `TEXT` to the prompt, under \"Notes from review\"")
	c.Flags().StringVar(&o.Base, "base", "", "start from this `COMMIT` of the repository (default: that of the job before)")
	c.Flags().BoolVar(&o.NewSession, "new-session", false, "have an agent begin a new session")
	c.Flags().BoolVar(&o.Keep, "keep", false,
		"keep what it leaves, to look into it, as overlay kept/ID or environment kept-ID: that of the job before is gone")
	a.jsonFlag(c)
	return c
}

// retryJob submits the task of an ended job once more.
func (a *app) retryJob(cmd *cobra.Command, e *engine.Engine, rec *jobs.Record, o engine.RetryOptions) (*jobs.Record, error) {
	cfg, err := a.config(cmd)
	if err != nil {
		return nil, err
	}
	o.Credentials = cfg.Credentials()
	s, t, err := e.PlanRetry(cmd.Context(), rec, o)
	if err != nil {
		return nil, err
	}
	a.notes(s.Notes)
	return e.Submit(cmd.Context(), s, t)
}
