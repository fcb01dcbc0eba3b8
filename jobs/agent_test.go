package jobs

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMeasurable: a cap that nothing could measure is refused, and says what would.
func TestMeasurable(t *testing.T) {
	claude := &Agent{Name: "claude", Tells: Tells{TellsEach, TellsEach, TellsEnd}}
	priced := &Agent{Name: "claude", Tells: claude.Tells, Model: "m-1"}
	codex := &Agent{Name: "codex", Tells: Tells{TellsEach, TellsEnd, ""}}
	opencode := &Agent{Name: "opencode", Tells: Tells{TellsEach, TellsEach, TellsEach}}
	broker := []Credential{{Name: "anthropic", API: APIAnthropic}}
	prices := Prices{Models: []Price{{Model: "m-*", Input: 1, Output: 2}}}
	for _, c := range []struct {
		name   string
		caps   Caps
		list   []Credential
		prices Prices
		agent  *Agent
		want   string // "" is that it can
	}{
		{"nothing", Caps{}, nil, Prices{}, nil, ""},
		{"clocks", Caps{Wall: time.Hour, Idle: time.Minute, Output: 1 << 20}, nil, Prices{}, nil, ""},
		{"turns of a command", Caps{Turns: 3}, nil, Prices{}, nil, "nothing is known of what the command writes"},
		{"turns of a command, with a broker", Caps{Turns: 3}, broker, Prices{}, nil, "nothing is known"},
		{"turns", Caps{Turns: 3}, nil, Prices{}, codex, ""},
		{"turns at the end", Caps{Turns: 3}, nil, Prices{}, &Agent{Name: "mini", Tells: Tells{Turns: TellsEnd}}, "the events of mini do not tell turns as they come"},
		{"requests", Caps{Requests: 3}, nil, Prices{}, claude, "max_requests cannot be measured"},
		{"requests by a broker", Caps{Requests: 3}, broker, Prices{}, claude, ""},
		{"tokens by events", Caps{Tokens: 3}, nil, Prices{}, claude, ""},
		{"tokens at the end", Caps{Tokens: 3}, nil, Prices{}, codex, "max_tokens cannot be measured: no credential of the task is for a model, and the events of codex"},
		{"tokens of a command", Caps{Tokens: 3}, nil, Prices{}, nil, "no credential of the task is for one"},
		{"dollars by events", Caps{USD: 3}, nil, Prices{}, opencode, ""},
		{"dollars by tokens", Caps{USD: 3}, nil, prices, priced, ""},
		{"dollars without a model", Caps{USD: 3}, nil, prices, claude, "names no model"},
		{"dollars of another model", Caps{USD: 3}, nil, prices, &Agent{Name: "claude", Tells: claude.Tells, Model: "n-1"}, "[prices] has none for the model n-1"},
		{"dollars without prices", Caps{USD: 3}, broker, Prices{}, opencode, "the configuration has no prices"},
		{"models", Caps{Models: []string{"m-1"}}, nil, prices, claude, "models cannot be measured"},
	} {
		err := c.caps.Measurable(c.list, c.prices, c.agent)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || HintOf(err) == "" || KindOf(err) != KindConfig) {
			t.Errorf("%s: %v (%s), want %q", c.name, err, HintOf(err), c.want)
		}
	}
}

func TestByEvents(t *testing.T) {
	caps := Caps{Turns: 1, Tokens: 2, USD: 3, Wall: time.Hour, Requests: 1}
	if got := caps.ByEvents(nil); !slices.Equal(got, []string{CapTurns, CapTokens, CapUSD}) {
		t.Error(got)
	}
	if got := caps.ByEvents([]Credential{{API: APIOpenAI}}); !slices.Equal(got, []string{CapTurns}) {
		t.Error(got)
	}
}

// TestResumeWith: the id of a session is the task's word, and becomes an argument. What
// could be an option or a path is refused.
func TestResumeWith(t *testing.T) {
	a := Agent{Name: "a", Resume: Command{Argv: []string{"a", "--resume=" + SessionWord, "x"}}}
	c, ok := a.ResumeWith("0f8e-1_b.C")
	if want := []string{"a", "--resume=0f8e-1_b.C", "x"}; !ok || !slices.Equal(c.Argv, want) || a.Resume.Argv[1] != "--resume="+SessionWord {
		t.Errorf("%q %v, %q", c.Argv, ok, a.Resume.Argv)
	}
	for _, id := range []string{"", "-x", "--dangerously", "../x", "a/../b", "a/b", "..", ".x", "a..b", "a b", "a\nb", "a\x1b[2Jb", "a;b", "$(id)", "a\x00", "é", strings.Repeat("a", 129), SessionWord} {
		if c, ok := a.ResumeWith(id); ok || !c.Empty() {
			t.Errorf("%q: %q", id, c)
		}
	}
	if _, ok := (&Agent{}).ResumeWith("s-1"); ok {
		t.Error("an agent without sessions went on with one")
	}
}
