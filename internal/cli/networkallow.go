package cli

import (
	"errors"
	"strings"

	"berth/engine"
	"berth/internal/network/policy"
	"berth/internal/network/policy/suffix"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) networkAllowCmd() *cobra.Command {
	var env string
	var wait bool
	c := &cobra.Command{
		Use: "allow JOB HOST[:PORT]... | allow --env NAME HOST[:PORT]...", Short: "let a job or environment reach more, while it runs",
		Long: `Add rules to what a job or an environment may reach, as [network] allow has them
(berth help --page network): names, wildcards, addresses, bundles. They hold within a
heartbeat (10 s), for this attempt and those after it, and stand in the record as your
act. What is denied, or is beyond the bounds of a project, profile or site, stays refused.

--wait returns when they hold, or when that is not known after three heartbeats.
` + exitHelp + `0 recorded, with --wait taken up or due when it starts; 2 a wrong word, one that would
open nothing, a job that has ended, a network that is open or off; 3 no such job or
environment; 5 it could not be recorded, or the login host was not reached; 8 --wait:
not known yet; 78 the list is its backend's, which is fixed.`,
		Example: `  berth network allow 0a1b2c3d b.example
  berth network allow --wait 0a1b2c3d db.example.org:5432 @pip
  berth network allow --env train b.example`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.networkTarget(cmd, env, args)
			if err != nil {
				return err
			}
			if t.env != nil {
				defer t.env.Close()
			}
			words, err := allowWords(cmd, t.rest)
			if err != nil {
				return err
			}
			return a.networkAllow(cmd, &t, words, wait)
		},
	}
	c.Flags().StringVar(&env, "env", "", "for the environment `NAME`")
	c.Flags().BoolVar(&wait, "wait", false, "return when it holds")
	return c
}

// allowWords checks words of a list.
func allowWords(cmd *cobra.Command, words []string) ([]string, error) {
	switch {
	case len(words) == 0:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs a host", Hint: cmd.CommandPath() + " --help"}
	case len(words) > jobs.MostAllowWords:
		return nil, usage("%d words are too many: %d at once", len(words), jobs.MostAllowWords)
	}
	for _, w := range words {
		rules, err := policy.Parse(w)
		if err == nil {
			err = suffix.Check(rules)
		}
		if err != nil {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Err: err, Hint: cmd.CommandPath() + " --help"}
		}
	}
	return words, nil
}

func (a *app) networkAllow(cmd *cobra.Command, t *networkOf, words []string, wait bool) (err error) {
	ctx := cmd.Context()
	var id string
	waits := false // nothing runs that could take it up
	if t.env != nil {
		if id, err = t.env.AllowNetwork(ctx, words); err != nil {
			return err
		}
		_, err = t.env.State(ctx)
		waits = errors.Is(err, engine.ErrNotRunning)
	} else {
		if id, err = t.e.AllowNetwork(ctx, &t.view, words); id == "" {
			return err
		}
		if err != nil {
			a.say("it is recorded here, and goes to %s with the next berth status that reaches it", t.view.Spec.Login.Host)
			return err
		}
		waits = t.view.State != jobs.StateRunning
	}
	list := strings.Join(words, " ")
	if waits {
		a.say("%s may reach %s when it starts", t.what(), list)
		return nil
	}
	if !wait {
		a.say("%s may reach %s, within a heartbeat", t.what(), list)
		return nil
	}
	var ok bool
	if t.env != nil {
		ok, err = t.env.NetworkAdded(ctx, id)
	} else {
		ok, err = t.e.NetworkAdded(ctx, &t.view, id)
	}
	switch {
	case err != nil:
		return err
	case !ok:
		a.say("it is recorded, and not known yet whether it holds: berth network show %s", t.id())
		return exitCode(jobs.CodePending)
	}
	a.say("%s may reach %s", t.what(), list)
	return nil
}

// id is what names it on a command line.
func (t *networkOf) id() string {
	if t.env != nil {
		return "--env " + t.env.Spec.Name
	}
	return jobs.Short(t.view.Spec.ID)
}
