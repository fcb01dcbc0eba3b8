package jobs

import (
	"fmt"
	"strings"
	"time"
)

// Spent is what attempts have cost: of models, of the time of tools, of a cluster.
type Spent struct {
	Attempts int `json:"attempts"` // that were begun
	Running  int `json:"running,omitempty"`
	// Turns, Calls and ToolSeconds are by the agents' own events.
	Turns       int     `json:"turns"`
	Calls       int     `json:"tool_calls"`
	ToolSeconds float64 `json:"tool_seconds"`
	// Usage is what brokers have counted; of an attempt without one it is by the agent's
	// own events, and ByEvents counts these attempts.
	Usage
	ByEvents int `json:"by_events,omitempty"`
	// Hours are of runners, from claim to end, and CoreHours these times the cores that
	// were asked for.
	Hours     float64 `json:"hours"`
	CoreHours float64 `json:"core_hours"`
}

// Add adds another one.
func (s *Spent) Add(o Spent) {
	s.Attempts += o.Attempts
	s.Running += o.Running
	s.Turns += o.Turns
	s.Calls += o.Calls
	s.ToolSeconds += o.ToolSeconds
	s.Usage.Add(&o.Usage)
	s.ByEvents += o.ByEvents
	s.Hours += o.Hours
	s.CoreHours += o.CoreHours
}

// Worth reports whether it is worth a line: models were asked, or there is a hundredth
// of a core-hour.
func (s *Spent) Worth() bool {
	return s.Turns > 0 || s.Calls > 0 || s.Tokens() > 0 || s.USD > 0 || s.CoreHours >= 0.01
}

// String says it in one line: "2 attempts, 9 turns, tools 41s, 34k tokens, 0.05 USD, 0.25 core-hours".
func (s *Spent) String() string {
	var out []string
	if s.Attempts > 1 {
		out = append(out, Plural(int64(s.Attempts), "attempt"))
	}
	if s.Turns > 0 || s.Calls > 0 {
		out = append(out, Plural(int64(s.Turns), "turn"), "tools "+s.ToolTime().String())
	}
	if s.Tokens() > 0 || s.USD > 0 {
		_, spent, _ := strings.Cut(s.Usage.String(), ", ")
		out = append(out, spent)
	}
	return strings.Join(append(out, fmt.Sprintf("%.2f core-hours", s.CoreHours)), ", ")
}

// ToolTime is how long tools were at work, in whole seconds.
func (s *Spent) ToolTime() time.Duration {
	return time.Duration(s.ToolSeconds * float64(time.Second)).Round(time.Second)
}

// Cores are those that are asked for: of each task, on all nodes.
func (r *Resources) Cores() int { return max(r.CPUs, 1) * max(r.Tasks, r.Nodes, 1) }

// Spent is what one attempt of a job has cost until now, and when that ended; models is
// what its broker has recorded, and agent what its events tell, where it left no last word.
func (a *Attempt) Spent(s *Spec, models *Usage, agent *AgentUse, now time.Time) (Spent, time.Time) {
	if a.Claim == nil {
		return Spent{}, time.Time{}
	}
	out, end := Spent{Attempts: 1}, now
	switch x := a.Exit; {
	case x != nil:
		end = x.Ended
	case a.Verdict != nil && !a.Beat.IsZero() && a.Beat.Before(a.Verdict.Time):
		end = a.Beat // it was found to be gone later
	case a.Verdict != nil:
		end = a.Verdict.Time
	case a.Decision != nil:
		end = a.Beat
	default:
		out.Running = 1
	}
	out.Hours = max(end.Sub(a.Claim.Time), 0).Hours()
	out.CoreHours = out.Hours * float64(s.Resources.Cores())
	if x := a.Exit; x != nil {
		models, agent = x.Usage, x.Agent
	}
	if agent != nil {
		out.agent(agent)
	}
	if models != nil && (models.Requests > 0 || models.Tokens() > 0) {
		usd := out.USD
		if out.Usage, out.ByEvents = *models, 0; out.USD == 0 && usd > 0 { // the broker knows no price
			out.USD, out.ByEvents = usd, 1
		}
	}
	return out, end
}

func (s *Spent) agent(u *AgentUse) {
	s.Turns = u.Turns
	for _, t := range u.Tools {
		s.Calls += t.Calls
		s.ToolSeconds += t.Seconds
	}
	if u.Usage != nil {
		s.Usage, s.ByEvents = *u.Usage, 1
	}
}
