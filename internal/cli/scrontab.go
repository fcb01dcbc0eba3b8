package cli

import (
	"strings"

	"berth/engine"
	"berth/internal/node/nodebin"
	"berth/internal/sys/crontab"
	"berth/internal/sys/run"
	"berth/internal/sys/socket"
	"berth/jobs"
	"berth/slurm"

	"github.com/spf13/cobra"
)

// scrontab is "berth follow --scrontab".
type scrontab struct {
	what, every string
	options     jobs.SlurmOptions
}

func (s *scrontab) bind(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&s.what, "scrontab", "", "have Slurm run this command regularly: `WHAT` is on, off or show")
	fs.StringVar(&s.every, "every", "10m", "with --scrontab on: run every `TIME`, such as 30m or 2h")
	fs.StringVar(&s.options.Partition, "partition", "", "with --scrontab on: partition `NAME` (default: the site's)")
	fs.StringVar(&s.options.Account, "account", "", "with --scrontab on: account `NAME` to charge (default: yours)")
	fs.StringVar(&s.options.QOS, "qos", "", "with --scrontab on: quality of service `NAME` (default: the site's)")
}

// do changes or shows the entry.
func (s *scrontab) do(cmd *cobra.Command, a *app, e *engine.Engine, ids []string) error {
	if len(ids) > 0 {
		return usage("--scrontab is for all jobs: it takes no ids")
	}
	ctx, home := cmd.Context(), e.Store.Home()
	entry := crontab.Entry{What: "which follows the jobs of", Home: home}
	cluster := slurm.New(run.Local{}, slurm.Config{Shared: socket.Dir})
	switch s.what {
	case "show":
		text, err := cluster.Crontab(ctx, entry)
		if err == nil && text == "" {
			return &jobs.Error{Kind: jobs.KindNotFound, Msg: "your scrontab has no entry of berth for " + home, Hint: "berth follow --scrontab on"}
		}
		for line := range strings.Lines(text) {
			if _, err := a.stdout.Write([]byte(jobs.Printable(strings.TrimSuffix(line, "\n")) + "\n")); err != nil {
				return err
			}
		}
		return err
	case "off":
		was, err := cluster.DropCrontab(ctx, entry)
		switch {
		case err != nil:
			return err
		case was:
			a.say("removed from your scrontab")
		default:
			a.say("there was no entry of berth for %s", home)
		}
		return nil
	case "on":
		every, err := jobs.ParseDuration(s.every)
		if err != nil {
			return usage("--every: %v", err)
		}
		node, err := nodebin.Install(e.Store.Bin()) // the nodes see it; whether they see this program is not known
		if err != nil {
			return err
		}
		changed, err := cluster.SetCrontab(ctx, slurm.Crontab{Entry: entry, Job: "berth-follow", Env: []string{"BERTH_HOME=" + home},
			Argv: []string{node, jobs.VerbFollow, "--all"}, Every: every, Options: s.options})
		switch {
		case err != nil:
			return err
		case changed:
			a.say("Slurm looks after the jobs of %s every %s; berth follow --scrontab off ends that", home, s.every)
		default:
			a.say("it is there already")
		}
		return nil
	}
	return usage("--scrontab %q: there are on, off and show", s.what)
}
