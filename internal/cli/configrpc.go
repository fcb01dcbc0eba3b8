package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"berth/internal/config"
	"berth/internal/config/sitefile"
	"berth/internal/sys/tally"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/spf13/cobra"
)

func (a *app) configRPCCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "rpc", Short: "count the commands that berth gave to Slurm",
		Long: `Count the commands of Slurm's that your berth processes have started, in the last hour
and the last 24 hours: on this machine, on the nodes where your jobs ran, and through
login hosts. They are counted in the state directory; nothing is asked.
` + exitHelp + `0 ok, 5 the counts could not be read.`,
		Example: `  berth config rpc
  berth config rpc --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.rpc() },
	}
	a.jsonFlag(c)
	return c
}

func (a *app) rpc() error {
	home, err := config.Home()
	if err != nil {
		return err
	}
	now := a.now()
	lines, err := tally.Log{Dir: store.AskedIn(home), Now: a.now}.Since(now.Add(-24 * time.Hour))
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "read the counts of commands", Err: err}
	}
	type count struct {
		Command  string  `json:"command"`
		LastHour int     `json:"last_hour"`
		LastDay  int     `json:"last_day"`
		PerHour  float64 `json:"per_hour"` // of the day
	}
	of := map[string]*count{}
	all, hosts := &count{Command: "all"}, map[string]bool{}
	for _, l := range lines {
		hosts[l.Host] = true
		if of[l.Program] == nil {
			of[l.Program] = &count{Command: l.Program}
		}
		for _, c := range []*count{of[l.Program], all} {
			c.LastDay++
			c.PerHour = float64(c.LastDay) / 24
			if now.Sub(l.Time) <= time.Hour {
				c.LastHour++
			}
		}
	}
	list := make([]*count, 0, len(of)+1)
	for _, name := range slices.Sorted(maps.Keys(of)) {
		list = append(list, of[name])
	}
	list = append(list, all)
	if a.json {
		return a.printJSON(map[string]any{"commands": list, "hosts": len(hosts), "poll_s": sitefile.Poll().Seconds()})
	}
	rows := make([][]string, len(list))
	for i, c := range list {
		rows[i] = []string{jobs.Printable(c.Command), strconv.Itoa(c.LastHour), strconv.Itoa(c.LastDay), fmt.Sprintf("%.1f", c.PerHour)}
	}
	return a.table([]string{"COMMAND", "LAST HOUR", "LAST 24 H", "PER HOUR"}, rows)
}
