package cli

import (
	"errors"
	"strings"

	"berth/internal/agents/adapters"
	"berth/internal/config"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) agentCmd() *cobra.Command {
	return group("agent",
		`An agent that berth knows is named in a task file, use = "NAME" in [agent]. Six are built
in; your own are files of TOML in $XDG_CONFIG_HOME/berth/agents.`,
		`  berth agent ls
  berth agent show claude >~/.config/berth/agents/mine.toml   # change it, then: use = "mine"
  berth agent check claude --image agents.sif                 # is all there that it needs?`,
		a.agentLsCmd(), a.agentShowCmd(), a.agentCheckCmd())
}

const agentExit = exitHelp + `0 ok, 2 a file of yours is wrong, 3 no such agent.`

// agentJSON is an agent in every --json output. Fields are only ever added.
type agentJSON struct {
	Name        string       `json:"name"`
	Origin      string       `json:"origin"`
	Description string       `json:"description,omitempty"`
	Command     jobs.Command `json:"command,omitzero"` // without model and caps
	Resume      jobs.Command `json:"resume,omitzero"`  // that goes on with a session, for which {session} stands
	Events      string       `json:"events"`
	Tells       jobs.Tells   `json:"tells"`
	Credentials []string     `json:"credentials,omitempty"`
	Hosts       []string     `json:"hosts,omitempty"`
	Needs       []string     `json:"needs,omitempty"`
	Versions    []string     `json:"versions,omitempty"`
	Sandbox     string       `json:"sandbox,omitempty"` // what becomes of its own
}

func agentOf(ad *adapters.Adapter) agentJSON {
	j := agentJSON{Name: ad.Name, Origin: ad.Origin(), Description: ad.Description, Events: ad.Events, Tells: ad.Tells, Credentials: ad.Credentials,
		Hosts: ad.Hosts, Needs: ad.Needs, Versions: ad.Versions}
	if s, err := ad.Settle(adapters.Asked{}); err == nil {
		j.Command, j.Resume, j.Sandbox = s.Command, s.Agent.Resume, s.Agent.Sandbox
	}
	return j
}

func oneAgent(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs one agent", Hint: "berth agent ls"}
	}
	return nil
}

func (a *app) agentLsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Short: "list the agents",
		Long: `List the built-in agents and your own. Columns: name, when its events tell turns, tokens
and US dollars (each: as it goes, so that a cap can be held; end: with the last one),
its credentials, where it comes from, description.
` + agentExit,
		Example: `  berth agent ls`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			list, bad := adapters.All(config.AgentsDir())
			out := make([]agentJSON, len(list))
			rows := make([][]string, len(list))
			for i, ad := range list {
				out[i] = agentOf(ad)
				rows[i] = []string{ad.Name, dash(ad.Tells.Turns), dash(ad.Tells.Tokens), dash(ad.Tells.USD),
					dash(strings.Join(ad.Credentials, " ")), ad.Origin(), dash(ad.Description)}
			}
			if a.json {
				return errors.Join(a.printJSON(map[string]any{"agents": out}), bad)
			}
			return errors.Join(a.table([]string{"AGENT", "TURNS", "TOKENS", "USD", "CREDENTIALS", "FROM", "DESCRIPTION"}, rows), bad)
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) agentShowCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "print an agent's file",
		Long: `Print what berth knows of an agent, as it is in its file. On stderr: where that is, and
what becomes of the agent's own sandbox.
` + agentExit,
		Example: `  berth agent show claude`,
		Args:    oneAgent,
		RunE: func(_ *cobra.Command, args []string) error {
			ad, err := adapters.Find(config.AgentsDir(), args[0])
			if err != nil {
				return err
			}
			j := agentOf(ad)
			if a.json {
				return a.printJSON(map[string]any{"agent": j})
			}
			a.say("agent %s (%s)", ad.Name, ad.Origin())
			if j.Sandbox != "" {
				a.say("%s", j.Sandbox)
			}
			_, err = a.stdout.Write(ad.Text)
			return err
		},
	}
	a.jsonFlag(c)
	return c
}
