package jobs

import (
	"strings"
	"testing"
	"time"
)

// TestSpent: the broker's figure counts where there is one, all attempts cost core-hours,
// and one that was killed until it was last seen.
func TestSpent(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	now := at.Add(10 * time.Hour)
	spec := &Spec{}
	spec.Resources = Resources{CPUs: 4, Nodes: 2}
	claim := &Claim{Time: at}
	agent := &AgentUse{Turns: 3, Usage: &Usage{Input: 50, USD: 2}, Tools: []ToolUse{{Name: "Bash", Calls: 2, Seconds: 90}, {Name: "Edit", Calls: 1, Seconds: 1}}}
	for _, c := range []struct {
		name   string
		a      Attempt
		models *Usage
		agent  *AgentUse
		text   string
		end    time.Time
	}{
		{"not begun", Attempt{}, nil, nil, "0.00 core-hours", time.Time{}},
		{"by events", Attempt{Claim: claim, Exit: &ExitRecord{Ended: at.Add(time.Hour), Agent: agent}}, nil, nil,
			"3 turns, tools 1m31s, 50 tokens, 2.00 USD, 8.00 core-hours", at.Add(time.Hour)},
		{"by the broker", Attempt{Claim: claim, Exit: &ExitRecord{Ended: at.Add(time.Hour), Agent: agent, Usage: &Usage{Requests: 1, Output: 7}}}, nil, nil,
			"3 turns, tools 1m31s, 7 tokens, 2.00 USD, 8.00 core-hours", at.Add(time.Hour)},
		{"killed", Attempt{Claim: claim, Beat: at.Add(time.Hour), Verdict: &Verdict{Time: at.Add(5 * time.Hour)}}, &Usage{Requests: 2, Input: 9}, nil, "9 tokens, 8.00 core-hours", at.Add(time.Hour)},
		{"killed, by events", Attempt{Claim: claim, Beat: at.Add(time.Hour), Verdict: &Verdict{Time: at.Add(5 * time.Hour)}}, nil, agent,
			"3 turns, tools 1m31s, 50 tokens, 2.00 USD, 8.00 core-hours", at.Add(time.Hour)},
		{"its last word counts", Attempt{Claim: claim, Exit: &ExitRecord{Ended: at.Add(time.Hour)}}, &Usage{Requests: 2, Input: 9}, agent, "8.00 core-hours", at.Add(time.Hour)},
		{"never seen", Attempt{Claim: claim, Verdict: &Verdict{Time: at.Add(time.Hour)}}, nil, nil, "8.00 core-hours", at.Add(time.Hour)},
		{"running", Attempt{Claim: claim, Beat: now}, nil, nil, "80.00 core-hours", now},
		{"clocks differ", Attempt{Claim: claim, Exit: &ExitRecord{Ended: at.Add(-time.Hour)}}, nil, nil, "0.00 core-hours", at.Add(-time.Hour)},
	} {
		s, end := c.a.Spent(spec, c.models, c.agent, now)
		if s.String() != c.text || !end.Equal(c.end) || (s.Running == 1) != (c.name == "running") || (s.ByEvents == 1) != strings.Contains(c.text, "USD") {
			t.Errorf("%s: %s at %s, %+v", c.name, s.String(), end, s)
		}
	}
	var all Spent
	all.Add(Spent{Attempts: 1, Turns: 1, ToolSeconds: 1, CoreHours: 1})
	all.Add(Spent{Attempts: 1, Usage: Usage{Input: 1}, Hours: 1})
	if all.String() != "2 attempts, 1 turn, tools 1s, 1 tokens, 1.00 core-hours" || !all.Worth() {
		t.Error(all.String())
	}
}
