package cli

import (
	"berth/internal/sweep/look"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) sweepReportCmd() *cobra.Command {
	var out, metric string
	c := &cobra.Command{
		Use: "report [SWEEP] -o FILE", Short: "write a page about a sweep: progress, time, metrics, failures",
		Long: `Write one HTML page about a sweep: progress over time, time and memory of tasks, a metric
against each parameter and all of them together, failures in groups, and what it has cost.
The page is one file without scripts, and loads nothing. Of a large sweep a part is drawn,
spread over all tasks, and the page says so.
` + sweepExit,
		Example: "  berth sweep report lr -o lr.html\n  berth sweep report lr -o - --metric loss >lr.html",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "report needs -o FILE", Hint: "berth sweep report -o report.html"}
			}
			l, err := lookAt(args)
			if err != nil {
				return err
			}
			defer l.Close()
			r, err := l.Report(metric, a.now())
			if err != nil {
				return err
			}
			if out == "-" {
				return r.Write(a.stdout)
			}
			if err := look.WriteFile(out, r.Write); err != nil {
				return err
			}
			for _, n := range r.Notes {
				a.say("%s", n)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "write the page to `FILE`; - is the standard output")
	c.Flags().StringVar(&metric, "metric", "", "draw this `NAME` against parameters (default: the one that most tasks have, or seconds)")
	return c
}
