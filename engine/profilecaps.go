package engine

import (
	"slices"

	"berth/jobs"
)

// holdCaps holds a place to the caps of its profile, which only narrow what a task, a flag
// and the configuration say, and gives them to one with an agent or with a credential for a
// model that has none.
func holdCaps(p *jobs.Place, agent *jobs.Agent) error {
	if err := p.Profile.Bounds(&p.Caps); err != nil {
		return err
	}
	b := p.Profile.Caps
	model := slices.ContainsFunc(p.Credentials, func(c jobs.Credential) bool { return c.Model() })
	if (model || agent != nil) && p.Resources.Tasks <= 1 { // of ranks none is watched
		p.Caps.Under(&b, model, agent != nil && agent.Tells.Turns == jobs.TellsEach)
	}
	return nil
}
