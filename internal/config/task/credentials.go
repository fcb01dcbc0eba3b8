package task

import (
	"slices"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/jobs"
)

// credentials reads the names of those that the task uses. What they are stands in the
// user's configuration alone.
func credentials(v strict.Value) (out []jobs.Credential) {
	if v.Is(strict.Table) {
		v.Failf("move [credentials.NAME] there; a task names it: credentials = [\"NAME\"]",
			"must be a list of names: what they are belongs into your own configuration")
		return nil
	}
	for _, item := range v.Items("names") {
		s := item.Text()
		switch {
		case s == "":
		case slices.ContainsFunc(out, func(c jobs.Credential) bool { return c.Name == s }):
			item.Failf("", "names %s a second time", s)
		default:
			out = append(out, jobs.Credential{Name: s})
		}
	}
	return out
}

func caps(t *strict.Reader, p *jobs.Place) {
	t.Synonyms("max_requests", "requests")
	t.Synonyms("max_turns", "turns", "max_steps")
	t.Synonyms("max_wall", "wall", "time", "max_time")
	t.Synonyms("max_idle", "idle")
	t.Synonyms("max_output", "output")
	t.Synonyms("max_tokens", "tokens")
	t.Synonyms("models", "model")
	t.Synonyms("server_tools", "tools")
	keys.Take(t, "caps", p)
	if old := t.Take("max_budget_usd"); old.Given() { // its name in files of Hermes
		if t.Take("max_usd").Given() {
			old.Failf("leave it out", "is said twice: here and as max_usd")
		}
		p.Caps.USD = keys.USD(old)
	}
}
