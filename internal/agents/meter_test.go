package agents

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// clock is one that goes when it is told.
type clock struct{ at time.Time }

func (c *clock) now() time.Time       { return c.at }
func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }
func each() jobs.Tells {
	return jobs.Tells{Turns: jobs.TellsEach, Tokens: jobs.TellsEach, USD: jobs.TellsEach}
}
func usage(in, out int64, usd jobs.USD) Event {
	return Event{Kind: KindUsage, Usage: &jobs.Usage{Requests: 1, Input: in, Output: out, USD: usd}}
}

func meter(caps jobs.Caps, tells jobs.Tells, prices jobs.Prices) (*Meter, *clock) {
	c := &clock{time.Unix(1e9, 0)}
	return NewMeter(caps, &jobs.Agent{Name: "a", Tells: tells}, prices, c.now), c
}

func TestMeter(t *testing.T) {
	turn := Event{Kind: KindTurn}
	prices := jobs.Prices{Models: []jobs.Price{{Model: "m", Input: 1e6, Output: 2e6}}} // a dollar a token
	for _, c := range []struct {
		name   string
		caps   jobs.Caps
		tells  jobs.Tells
		prices jobs.Prices
		do     func(*Meter, *clock)
		want   string // "" is that none is met
	}{
		{"turns that are allowed", jobs.Caps{Turns: 2}, each(), jobs.Prices{}, func(m *Meter, _ *clock) { m.Event(turn); m.Event(turn) }, ""},
		{"one turn more", jobs.Caps{Turns: 2}, each(), jobs.Prices{}, func(m *Meter, _ *clock) {
			m.Event(turn)
			m.Event(usage(100, 20, 0))
			m.Event(turn)
			m.Event(turn)
		}, "cap max_turns met: 2 of 2 turns, 1 request, 120 tokens"},
		{"turns that are not told as they come", jobs.Caps{Turns: 1}, jobs.Tells{Turns: jobs.TellsEnd}, jobs.Prices{}, func(m *Meter, _ *clock) { m.Event(turn); m.Event(turn) }, ""},
		{"tokens", jobs.Caps{Tokens: 100}, each(), jobs.Prices{}, func(m *Meter, _ *clock) { m.Event(usage(60, 1, 0)); m.Event(usage(39, 1, 0)) },
			"cap max_tokens met: 101 of 100 tokens, 0 requests"},
		{"tokens that the end tells", jobs.Caps{Tokens: 100}, jobs.Tells{Tokens: jobs.TellsEnd}, jobs.Prices{}, func(m *Meter, _ *clock) {
			m.Event(Event{Kind: KindEnd, Whole: true, Usage: &jobs.Usage{Input: 1000}})
		}, ""},
		{"dollars", jobs.Caps{USD: 1}, each(), jobs.Prices{}, func(m *Meter, _ *clock) { m.Event(usage(60, 1, 0.6)); m.Event(usage(39, 1, 0.6)) },
			"cap max_usd met: 1.20 of 1.00 USD, 0 requests, 101 tokens"},
		{"dollars by prices", jobs.Caps{USD: 5}, jobs.Tells{Tokens: jobs.TellsEach}, prices, func(m *Meter, _ *clock) {
			m.Event(Event{Kind: KindStart, Model: "m"})
			m.Event(usage(2, 2, 0))
		}, "cap max_usd met: 6.00 of 5.00 USD"},
		{"dollars that an agent understates", jobs.Caps{USD: 5}, each(), prices, func(m *Meter, _ *clock) {
			m.Event(Event{Kind: KindStart, Model: "m"})
			m.Event(usage(2, 2, 0.01))
		}, "cap max_usd met: 6.00 of 5.00 USD"},
		{"the broker's dollars", jobs.Caps{USD: 5}, each(), jobs.Prices{}, func(m *Meter, _ *clock) {
			m.Event(usage(1, 1, 0.01))
			m.Broker(jobs.Usage{Requests: 3, Input: 900, USD: 5}, 0)
		}, "cap max_usd met: 5.00 of 5.00 USD, 3 requests, 900 tokens"},
		{"events never take from the broker's", jobs.Caps{Tokens: 100}, each(), jobs.Prices{}, func(m *Meter, _ *clock) {
			m.Broker(jobs.Usage{Requests: 1, Input: 99}, 0)
			m.Event(usage(1, 0, 0))
		}, ""},
		{"wall", jobs.Caps{Wall: time.Minute}, each(), jobs.Prices{}, func(_ *Meter, c *clock) { c.pass(time.Minute) }, "cap max_wall met: 1m0s of 1m0s"},
		{"wall, before", jobs.Caps{Wall: time.Minute}, each(), jobs.Prices{}, func(_ *Meter, c *clock) { c.pass(59 * time.Second) }, ""},
		{"idle", jobs.Caps{Idle: time.Minute}, each(), jobs.Prices{}, func(_ *Meter, c *clock) { c.pass(time.Minute) }, "cap max_idle met: nothing was written or asked for 1m0s"},
		{"idle, and then it writes", jobs.Caps{Idle: time.Minute}, each(), jobs.Prices{}, func(m *Meter, c *clock) { c.pass(50 * time.Second); m.Output(1); c.pass(50 * time.Second) }, ""},
		{"idle while a request is under way", jobs.Caps{Idle: time.Minute}, each(), jobs.Prices{}, func(m *Meter, c *clock) {
			m.Broker(jobs.Usage{Requests: 1}, 1)
			c.pass(time.Hour)
		}, ""},
		{"output", jobs.Caps{Output: 10}, each(), jobs.Prices{}, func(m *Meter, _ *clock) { m.Output(6); m.Output(6) }, "cap max_output met: 12B of 10B of output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, clock := meter(c.caps, c.tells, c.prices)
			c.do(m, clock)
			got := ""
			if met := m.Met(); met != nil {
				got = met.Reason
			}
			if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestCarry: what earlier attempts have used counts for caps, and not for what this one did.
func TestCarry(t *testing.T) {
	for _, c := range []struct {
		name string
		caps jobs.Caps
		do   func(*Meter)
		want string
	}{
		{"turns", jobs.Caps{Turns: 3}, func(m *Meter) { m.Event(Event{Kind: KindTurn}); m.Event(Event{Kind: KindTurn}) },
			"cap max_turns met: 3 of 3 turns" + jobs.WithEarlier},
		{"dollars", jobs.Caps{USD: 1}, func(m *Meter) { m.Event(usage(1, 1, 0.5)) },
			"cap max_usd met: 1.10 of 1.00 USD, 1 request, 12 tokens" + jobs.WithEarlier},
		{"requests, which the broker refuses", jobs.Caps{Requests: 2}, func(m *Meter) { m.Broker(jobs.Usage{Requests: 1}, 1) }, ""},
		{"output", jobs.Caps{Output: 1}, func(m *Meter) { m.Output(1) }, ""},
	} {
		m, _ := meter(c.caps, each(), jobs.Prices{})
		m.Carry(Before{Turns: 2, Usage: jobs.Usage{Requests: 1, Input: 10, USD: 0.6}})
		c.do(m)
		got := ""
		if met := m.Met(); met != nil {
			got = met.Reason
		}
		if use := m.Use(); got != c.want || use.Turns > 1 || use.Usage != nil && use.Usage.Tokens() > 2 {
			t.Errorf("%s: %q, want %q; %+v", c.name, got, c.want, use)
		}
	}
}

// TestStop: at a cap the results of tools that run are waited for, but not for ever.
func TestStop(t *testing.T) {
	m, c := meter(jobs.Caps{Wall: time.Minute}, each(), jobs.Prices{})
	m.Event(Event{Kind: KindTool, Tool: "Bash", ID: "1"})
	if m.Stop() {
		t.Fatal("no cap is met")
	}
	c.pass(time.Minute)
	if m.Met() == nil || m.Stop() {
		t.Fatal("a tool is at work")
	}
	m.Event(Event{Kind: KindResult, ID: "1"})
	if !m.Stop() {
		t.Fatal("its result has come")
	}
	m.Event(Event{Kind: KindTool, Tool: "Bash", ID: "2"})
	c.pass(safeTime)
	if !m.Stop() {
		t.Fatal("it was waited for long enough")
	}
	if use := m.Use(); len(use.Tools) != 1 || use.Tools[0] != (jobs.ToolUse{Name: "Bash", Calls: 2, Seconds: 60}) {
		t.Fatalf("%+v", use)
	}
}

// TestUse sums up a stream.
func TestUse(t *testing.T) {
	data, err := os.ReadFile("testdata/claude.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	m, c := meter(jobs.Caps{}, each(), jobs.Prices{})
	d, _ := NewDecoder("claude", m.Event)
	for _, line := range bytes.SplitAfter(data, []byte("\n")) {
		c.pass(time.Second)
		_, _ = d.Write(line)
	}
	use := m.Use()
	if use.Turns != 4 || use.Version != "2.1.240" || use.Model != "claude-sonnet-4-6" || use.Usage.USD != 0.05213 || len(use.Tools) != 4 {
		t.Errorf("%+v", use)
	}
	i := slices.IndexFunc(use.Tools, func(t jobs.ToolUse) bool { return t.Name == "Bash" })
	if use.Tools[i] != (jobs.ToolUse{Name: "Bash", Calls: 1, Failed: 1, Seconds: 1}) {
		t.Errorf("%+v", use.Tools[i])
	}
}

// TestMeterBounds: what a task could say without end is bounded.
func TestMeterBounds(t *testing.T) {
	m, _ := meter(jobs.Caps{}, each(), jobs.Prices{})
	for i := range 10_000 {
		m.Event(Event{Kind: KindTool, Tool: fmt.Sprint("t", i), ID: fmt.Sprint(i)})
	}
	if use := m.Use(); len(use.Tools) != maxTools+1 || use.Tools[0].Name != "others" || use.Tools[0].Calls != 10_000-maxTools || len(m.open) != maxCalls {
		t.Errorf("%d %+v", len(use.Tools), use.Tools[0])
	}
}
