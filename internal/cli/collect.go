package cli

import (
	"path/filepath"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) collectCmd() *cobra.Command {
	var into string
	c := &cobra.Command{
		Use: "collect ID",
		Long: `Fetch what an ended job has left and what is not here yet:

- its branch, at once, where it could not be put into the repository (it was missing,
  full or read-only). berth ps, status, wait and gc try that too, but less and less
  often after a failure;
- its result, where the task's files were kept because no result could be made of
  them: they become the branch, as at the end of a job;
- files that were left out: artifacts over a limit go to the attempt's directory, or
  to DIR with --into; files that the branch leaves out go to DIR.

The files were written by the task: they are copied as plain files, and nothing in
them is run. The command may be repeated.
` + exitHelp + `0 everything is here, 2 the job has not ended or has no workspace, 3 no such
job, or nothing of it was kept, 5 the branch could not be put into the repository or
files could not be copied, 11 some files are still not here, 75 another berth collect
is doing the same, 78 the state directory is open to others.`,
		Example: `  berth collect 0a1b2c3d                # what berth status says is not here yet
  berth collect 0a1b2c3d --into left    # also files that the branch leaves out`,
		Args: oneJob,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			recs, err := find(e, ids)
			if err != nil {
				return err
			}
			if into != "" {
				if into, err = filepath.Abs(into); err != nil {
					return err
				}
			}
			views := e.Reconcile(cmd.Context(), recs)
			a.warn(views)
			b, err := e.Bring(cmd.Context(), &views[0], into)
			if err != nil {
				return err
			}
			if err := a.printBrought(views[0], b); err != nil {
				return err
			}
			if len(b.Missing) > 0 {
				return exitCode(jobs.CodePartial)
			}
			return nil
		},
	}
	c.Flags().StringVar(&into, "into", "", "copy files that were left out to the new directory `DIR`")
	a.jsonFlag(c)
	return c
}

// oneJob takes the id of one job.
func oneJob(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " takes one job id", Hint: cmd.CommandPath() + " --help"}
	}
	return someJobs(cmd, args)
}

// printBrought is the answer of collect.
func (a *app) printBrought(v engine.View, b *engine.Brought) error {
	if a.json {
		return a.printJSON(map[string]any{"job": viewJSON(v), "brought": b})
	}
	var rows [][2]string
	add := func(label, value string) {
		if value != "" {
			rows = append(rows, [2]string{label, value})
		}
	}
	switch {
	case b.Branch == "":
		add("branch", "none: it changed nothing")
	case b.Collected:
		add("branch", b.Branch+", made of the files that were kept")
	default:
		add("branch", b.Branch)
	}
	if n := len(b.Files); n > 0 {
		add("copied", jobs.Plural(n, "file")+" to "+b.Dir)
	}
	for _, m := range b.Missing {
		add("not here", m)
	}
	if b.Kept != "" {
		add("kept", b.Kept+" (the task wrote it: run no git there)")
	}
	return a.rows(rows)
}
