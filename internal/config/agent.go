package config

import (
	"cmp"
	"slices"
	"strings"

	"berth/internal/agents/adapters"
	"berth/jobs"
)

// Agent settles the agent that a task names, as [Config.Task] does.
func (c *Config) Agent(t *jobs.Task) error { return c.agent(t) }

// agent settles the one that a task names: its command, its variables below the task's
// own, and what its node has to know of it.
func (c *Config) agent(t *jobs.Task) error {
	if t.Agent == nil || t.Agent.Events != "" { // a program has settled it
		return nil
	}
	a, err := adapters.Find(AgentsDir(), t.Agent.Name)
	if err != nil {
		return err
	}
	if a.Tells.Turns == jobs.TellsEach {
		b := c.bounds().Within(c.profile.Caps)
		t.Caps.Turns = cmp.Or(t.Caps.Turns, b.Turns)
	}
	s, err := a.Settle(adapters.Asked{Command: t.Command, Model: t.Agent.Model, MaxTurns: t.Caps.Turns, MaxUSD: t.Caps.USD,
		OwnSandbox: t.Agent.OwnSandbox != nil && *t.Agent.OwnSandbox})
	if err != nil {
		return err
	}
	s.Agent.OwnSandbox = t.Agent.OwnSandbox
	t.Command, t.Agent = s.Command, &s.Agent
	name := func(kv string) string { n, _, _ := strings.Cut(kv, "="); return n }
	under := slices.DeleteFunc(s.Env, func(kv string) bool {
		return slices.ContainsFunc(t.Env, func(o string) bool { return name(o) == name(kv) })
	})
	t.Env = slices.Concat(under, t.Env)
	return nil
}
