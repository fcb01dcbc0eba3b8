package cli

import (
	"os"

	"berth/internal/sweep/metric"

	"github.com/spf13/cobra"
)

// metricCmd is for tasks alone, and not in the list of commands: in a container another program
// is in its place.
func (a *app) metricCmd() *cobra.Command {
	return &cobra.Command{
		Use: "metric NAME=VALUE...",
		Long: `Tell metrics of a task of a sweep. It is for what the task runs: the last value of each name
is kept, and berth sweep status shows it meanwhile. It writes a line for each to the file
$BERTH_METRICS, as the task itself may.

Exit code: 0 when they were written, 2 when one is wrong or no task runs this; then none was.`,
		Example: "  berth metric loss=0.25 epoch=3",
		RunE:    func(_ *cobra.Command, args []string) error { return metric.Say(os.Getenv(metric.Var), args) },
	}
}
