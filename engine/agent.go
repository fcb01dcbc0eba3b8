package engine

import (
	"slices"

	"berth/jobs"
)

// devFull is the device that bubblewrap, of which agents make their sandboxes, shows inside,
// and that the /dev of a container of layers lacks.
const devFull = "/dev/full"

// settleAgent refuses to switch off an agent's own sandbox where nothing else is around
// it, unless the task says so itself, and what is not watched in ranks.
func settleAgent(s *jobs.Spec) error {
	a, c := s.Agent, s.Caps
	if s.Resources.Tasks > 1 && (a != nil || c.Turns > 0 || c.Wall > 0 || c.Idle > 0 || c.Output > 0) {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "agents and their caps are not available with ntasks above 1", Hint: "leave one of them out"}
	}
	if a != nil && a.OwnSandbox != nil && *a.OwnSandbox && s.Can().Layers &&
		!slices.ContainsFunc(s.Mounts, func(m jobs.Mount) bool { return m.Destination == devFull }) {
		s.Mounts = append(slices.Clone(s.Mounts), jobs.Mount{Source: devFull, Destination: devFull})
	}
	if a == nil || !s.Can().Bare || a.Sandbox == "" || a.OwnSandbox != nil {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig,
		Msg:  "the backend " + s.Backend + " has no container, and the agent " + a.Name + " would run there with its own sandbox and questions off",
		Hint: "choose a backend with a container; or say in [agent] own_sandbox = true, which leaves it on, or false, which you mean then"}
}
