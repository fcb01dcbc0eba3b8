package engine

import "berth/jobs"

// settleAgent refuses to switch off an agent's own sandbox where nothing else is around
// it, unless the task says so itself.
func settleAgent(s *jobs.Spec) error {
	a := s.Agent
	if a == nil || !s.Can().Bare || a.Sandbox == "" || a.OwnSandbox != nil {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + s.Backend + " has no container, and the agent " + a.Name + " would run there with its own sandbox and questions off",
		Hint: "choose a backend with a container; or say in [agent] own_sandbox = true, which leaves it on, or false, which you mean then"}
}
