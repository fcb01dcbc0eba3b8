package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) networkRelayCmd() *cobra.Command {
	c := group("relay",
		`Where compute nodes have no way out, a profile says via = "login" below [network]: then
names are resolved and connections made on the login node, by berth run or berth wait
while they watch, or by a relay in the background. It dials what the job's supervisor
has allowed, and nothing else.`,
		`  berth network relay start
  berth network relay status`, a.relayStartCmd(), a.relayStatusCmd(), a.relayStopCmd())
	c.Short = "reach the network for jobs from this login node"
	return c
}

func (a *app) relayStartCmd() *cobra.Command {
	limit := engine.RelayLimit.String()
	c := &cobra.Command{
		Use: "start", Short: "start a relay in the background of this machine",
		Long: `Start a relay for all of your jobs and environments with via = "login": one small
process with low priority. It ends 10 minutes after nothing has needed it, or when its
limit has passed. One that runs is left alone.
` + exitHelp + `0 it runs, 2 usage, 5 it could not be started.`,
		Example: `  berth network relay start
  berth network relay start --limit 3d`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := jobs.ParseDuration(limit)
			if err != nil {
				return usage("--limit: %v", err)
			}
			e, err := a.engine()
			if err != nil {
				return err
			}
			s, fresh, err := e.StartRelay(cmd.Context(), d)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"relay": s, "started": fresh})
			}
			word := "runs already"
			if fresh {
				word = "started"
			}
			a.say("relay %s: process %d on %s, until %s at the latest", word, s.PID, s.Host, a.when(s.Until))
			return nil
		},
	}
	c.Flags().StringVar(&limit, "limit", "12h", "end after `TIME`, such as 3d")
	a.jsonFlag(c)
	return c
}

func (a *app) relayStatusCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "show the relay of this machine, and which jobs have one",
		Long: `Show the relay in the background of this machine, and each job and environment whose
network goes by a relay: whether it has one (also berth run, or one on another login node),
or waits for one.
Columns: job or environment, state, since when.
` + exitHelp + `0 a relay runs here, 3 none does.`,
		Example: `  berth network relay status
  berth network relay status --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			s, err := e.RelayState()
			if err != nil {
				return err
			}
			needs, err := e.RelayNeeds()
			if err != nil {
				a.say("warning: %v", err)
			}
			if err := a.relayStatus(s, needs); err != nil {
				return err
			}
			if s == nil {
				return exitCode(jobs.CodeNotFound)
			}
			return nil
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) relayStatus(s *engine.RelayState, needs []engine.RelayNeed) error {
	if a.json {
		return a.printJSON(map[string]any{"relay": s, "needs": append([]engine.RelayNeed{}, needs...)})
	}
	if s == nil {
		a.say("no relay runs on this machine; berth network relay start starts one")
	} else {
		a.say("relay: process %d on %s since %s, until %s at the latest; its log is %s", s.PID, s.Host, a.when(s.Began), a.when(s.Until), s.Log)
	}
	rows := make([][]string, len(needs))
	for i, n := range needs {
		state, since := "does not run yet", "-"
		switch {
		case n.PID != 0:
			state = "relay on " + n.Host + ", process " + strconv.Itoa(n.PID)
		case n.Runs && n.Since.IsZero():
			state = "known on its login host"
		case n.Runs:
			state = "waits for a relay"
		}
		if !n.Since.IsZero() {
			since = a.when(n.Since)
		}
		rows[i] = []string{n.Name, state, since}
	}
	if len(rows) == 0 {
		return nil
	}
	return a.table([]string{"FOR", "STATE", "SINCE"}, rows)
}

func (a *app) relayStopCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "stop", Short: "end the relay of this machine",
		Long: `End the relay in the background of this machine. Connections that go by it break; jobs
go on, and wait for another relay when they need one.
` + exitHelp + `0 it has ended, 3 none was there, 5 it does not end.`,
		Example: `  berth network relay stop`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			s, err := e.StopRelay(cmd.Context())
			if err == nil && s == nil {
				err = &jobs.Error{Kind: jobs.KindNotFound, Msg: "no relay runs on this machine",
					Hint: "berth network relay status shows which jobs have one"}
			}
			if err != nil || a.json {
				return err
			}
			a.say("the relay, process %d, has ended", s.PID)
			return nil
		},
	}
	a.jsonFlag(c)
	return c
}

// relays is the relay of jobs while this command watches them, until stop is called.
func (a *app) relays(ctx context.Context, e *engine.Engine, recs ...*jobs.Record) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all []chan struct{}
	for _, r := range recs {
		if r.Spec.Network.Via != jobs.ViaLogin || jobs.StateOf(r).Final() {
			continue
		}
		done := make(chan struct{})
		all = append(all, done)
		go func() {
			defer close(done)
			// Its troubles are told; without it the job goes on.
			_ = e.Relay(ctx, engine.RelayOptions{Job: r.Spec.ID, Say: func(text string) { a.say("%s", text) }})
		}()
	}
	return func() {
		cancel()
		for _, done := range all {
			<-done
		}
	}
}

// relayWanted is what a running job waits for that has no relay, "" where it has one or
// needs none.
func relayWanted(r *jobs.Record) string {
	since := engine.WaitsForRelay(r)
	if since.IsZero() {
		return ""
	}
	return relaySince(since)
}

func relaySince(since time.Time) string {
	return fmt.Sprintf("a relay, since %s: berth network relay start on the login node", since.Local().Format(time.DateTime))
}
