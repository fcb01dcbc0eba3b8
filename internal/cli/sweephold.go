package cli

import (
	"strconv"

	"berth/internal/sweep"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) sweepPauseCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "pause [SWEEP]", Short: "begin no more tasks; those that run go on to their end",
		Long: `Begin no more tasks of a sweep. Those that run go on to their end, and then its workers end
and give back what they hold. berth sweep resume goes on.
` + sweepExit,
		Example: "  berth sweep pause lr\n  berth sweep resume lr",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := oneSweep(args)
			if err != nil {
				return err
			}
			if p := s.Paused(); p != nil {
				a.say("sweep %s is paused already: %s", s.Spec.Name, p.Why)
				return nil
			}
			if err := s.Pause(sweep.Pause{Why: "a user has said so"}); err != nil {
				return err
			}
			a.say("sweep %s is being paused; it goes on with: berth sweep resume %s", s.Spec.Name, jobs.Short(s.Spec.ID))
			return nil
		},
	}
	return c
}

func (a *app) sweepThrottleCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "throttle SWEEP N", Short: "run N tasks of a sweep at once, from now on",
		Long: `Run N tasks of a sweep at once and no more, of all its workers together. Those that run go on
to their end. With 0 there are as many again as the sweep was submitted with. Workers see it
within some seconds.
` + sweepExit,
		Example: "  berth sweep throttle lr 2\n  berth sweep throttle lr 0",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 0 {
				return usage("%q is no number of tasks; 0 is no limit, and berth sweep pause begins no more", args[1])
			}
			s, err := oneSweep(args[:1])
			if err != nil {
				return err
			}
			if err := s.Throttle(n); err != nil {
				return err
			}
			if n == 0 {
				a.say("sweep %s is throttled no more", s.Spec.Name)
				return nil
			}
			a.say("sweep %s runs %s at once", s.Spec.Name, jobs.Plural(n, "task"))
			return nil
		},
	}
	return c
}
