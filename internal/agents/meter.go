package agents

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"berth/jobs"
)

// safeTime is how long a cap that is met waits for the results of tools that run.
const safeTime = 30 * time.Second

// Bounds of what a meter remembers.
const (
	maxCalls = 256 // that have no result yet
	maxTools = 100 // with a row of their own
)

// A Meter holds a task to its caps, by what is seen of it: its events, its output, its
// clock, and what a broker has counted. It is safe for concurrent use.
type Meter struct {
	caps   jobs.Caps
	tells  jobs.Tells
	prices jobs.Prices
	now    func() time.Time

	mu     sync.Mutex
	begin  time.Time
	last   time.Time // it wrote, or something of it ended
	busy   int       // requests to models, and jobs that it waits for, that are under way
	output int64
	model  string
	events jobs.Usage // by events
	broker jobs.Usage
	use    jobs.AgentUse
	before Before
	open   []call
	tools  map[string]*jobs.ToolUse
	met    *Met
	metAt  time.Time
}

// Before is what earlier attempts of the job have used, for the caps alone.
type Before struct {
	Turns int
	Usage jobs.Usage
}

// Met is a cap that is met.
type Met struct {
	Cap    string // [jobs.CapTurns] and the others
	Reason string // with the figures
}

type call struct {
	id, tool string
	since    time.Time
}

// NewMeter begins to measure a task, now; agent is nil where nothing is known of its
// events.
func NewMeter(caps jobs.Caps, agent *jobs.Agent, prices jobs.Prices, now func() time.Time) *Meter {
	m := &Meter{caps: caps, prices: prices, now: now, begin: now(), last: now(), tools: map[string]*jobs.ToolUse{}}
	if agent != nil {
		m.tells, m.model = agent.Tells, agent.Model
	}
	return m
}

// Carry has the caps hold for what was used before, too.
func (m *Meter) Carry(b Before) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = b
}

// Event takes what the agent has said.
func (m *Meter) Event(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = m.now()
	switch e.Kind {
	case KindStart:
		m.use.Session, m.use.Version = cmp.Or(m.use.Session, e.Session), cmp.Or(m.use.Version, e.Version)
		m.use.Model = cmp.Or(m.use.Model, e.Model)
		m.model = cmp.Or(m.model, e.Model)
	case KindTurn:
		if m.tells.Turns == jobs.TellsEach && m.caps.Turns > 0 && m.use.Turns+m.before.Turns >= m.caps.Turns {
			m.meet(jobs.CapTurns, fmt.Sprintf("%d of %d turns%s%s", m.use.Turns+m.before.Turns, m.caps.Turns, m.spent(), m.earlier()))
			return // what follows is not carried out
		}
		m.use.Turns++
	case KindTool:
		m.called(e)
	case KindResult:
		m.answered(e)
	case KindUsage:
		if e.Usage != nil {
			m.add(*e.Usage)
		}
	case KindError:
		m.use.Reason = cmp.Or(e.Reason, m.use.Reason)
	case KindEnd:
		m.ended(e)
		return
	}
	m.check()
}

func (m *Meter) called(e Event) {
	if len(m.open) < maxCalls {
		m.open = append(m.open, call{e.ID, e.Tool, m.last})
	}
	m.tool(e.Tool).Calls++
}

// tool is the row of a tool; beyond the bound all have one together.
func (m *Meter) tool(name string) *jobs.ToolUse {
	if m.tools[name] == nil && len(m.tools) >= maxTools {
		name = "others"
	}
	if m.tools[name] == nil {
		m.tools[name] = &jobs.ToolUse{Name: name}
	}
	return m.tools[name]
}

func (m *Meter) answered(e Event) {
	i := slices.IndexFunc(m.open, func(c call) bool { return c.id == e.ID })
	if i < 0 {
		return
	}
	c := m.open[i]
	m.open = slices.Delete(m.open, i, i+1)
	row := m.tool(c.tool)
	row.Seconds += m.last.Sub(c.since).Seconds()
	if e.Failed {
		row.Failed++
	}
}

// add counts what was used, at the task's own price where it is not said.
func (m *Meter) add(u jobs.Usage) {
	if p := m.prices.Of(m.model); p != nil {
		u.USD = max(u.USD, p.Cost(u))
	}
	m.events.Requests += u.Requests
	m.events.Input += u.Input
	m.events.CacheRead += u.CacheRead
	m.events.CacheWrite += u.CacheWrite
	m.events.Output += u.Output
	m.events.USD += u.USD
}

func (m *Meter) ended(e Event) {
	m.open = nil
	m.use.Turns = max(m.use.Turns, e.Turns)
	m.use.Reason, m.use.Denied = e.Reason, e.Denied
	if u := e.Usage; u != nil && e.Whole {
		most := func(have *int64, n int64) { *have = max(*have, n) }
		most(&m.events.Input, u.Input)
		most(&m.events.CacheRead, u.CacheRead)
		most(&m.events.CacheWrite, u.CacheWrite)
		most(&m.events.Output, u.Output)
		usd := u.USD
		if p := m.prices.Of(m.model); p != nil && usd == 0 {
			usd = p.Cost(m.events)
		}
		m.events.USD = max(m.events.USD, usd)
	}
}

// Again is that the agent is started once more, as it did not find its session. What was
// used counts, and so do the clocks.
func (m *Meter) Again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open, m.use.Session, m.use.Reason, m.use.Denied = nil, "", "", nil
}

// Output takes that the task has written so many bytes.
func (m *Meter) Output(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.output += int64(n)
	if n > 0 {
		m.last = m.now()
	}
	m.check()
}

// Broker takes what a broker has counted, and how many requests are under way, with
// what else the task waits for.
func (m *Meter) Broker(u jobs.Usage, busy int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if busy != m.busy || u.Requests != m.broker.Requests {
		m.last = m.now()
	}
	m.broker, m.busy = u, busy
	m.check()
}

// Decoded takes what a decoder has counted.
func (m *Meter) Decoded(c Counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.use.Text, m.use.Unknown, m.use.Long = c.Text, c.Unknown, c.Long
}

// check looks for a cap that is met. The lock is held.
func (m *Meter) check() {
	now := m.now()
	wall, idle := now.Sub(m.begin), now.Sub(m.last)
	switch {
	case m.met != nil:
		return
	case m.caps.Output > 0 && m.output > int64(m.caps.Output):
		m.meet(jobs.CapOutput, fmt.Sprintf("%s of %s of output", jobs.Bytes(m.output), m.caps.Output))
	case m.caps.Wall > 0 && wall >= m.caps.Wall:
		m.meet(jobs.CapWall, fmt.Sprintf("%s of %s%s", wall.Round(time.Second), m.caps.Wall, m.spent()))
	case m.caps.Idle > 0 && m.busy == 0 && idle >= m.caps.Idle:
		m.meet(jobs.CapIdle, fmt.Sprintf("nothing was written or asked for %s%s", idle.Round(time.Second), m.spent()))
	}
	caps := m.caps
	caps.Requests = 0 // the broker refuses the one that is too many: the last one has its answer to come
	if which, reason := caps.Met(m.counted(), false); which != "" && m.met == nil {
		m.met, m.metAt = &Met{which, reason + m.earlier()}, now
	}
}

// counted is the usage that caps are held to: what events tell at the end alone is none.
func (m *Meter) counted() jobs.Usage {
	u := Counted(m.tells, m.broker, m.events)
	u.Add(&m.before.Usage)
	return u
}

// Counted is the usage of an attempt that caps are held to, of what its broker and its
// events have said.
func Counted(tells jobs.Tells, broker, events jobs.Usage) jobs.Usage {
	u := larger(broker, events)
	if tells.Tokens != jobs.TellsEach && tells.USD != jobs.TellsEach {
		u = broker
	}
	u.Requests = broker.Requests
	return u
}

// usage is the larger of what events and broker say.
func (m *Meter) usage() jobs.Usage { return larger(m.broker, m.events) }

func larger(u, events jobs.Usage) jobs.Usage {
	if events.Tokens() > u.Tokens() {
		u.Input, u.CacheRead, u.CacheWrite, u.Output = events.Input, events.CacheRead, events.CacheWrite, events.Output
	}
	u.USD = max(u.USD, events.USD)
	u.Requests = max(u.Requests, events.Requests)
	return u
}

// earlier is said behind figures that have a part of earlier attempts.
func (m *Meter) earlier() string {
	if m.before == (Before{}) {
		return ""
	}
	return jobs.WithEarlier
}

func (m *Meter) spent() string {
	if u := m.usage(); u.Tokens() > 0 || u.Requests > 0 {
		return ", " + u.String()
	}
	return ""
}

func (m *Meter) meet(which, figures string) {
	if m.met == nil {
		m.met, m.metAt = &Met{which, "cap " + which + " met: " + figures}, m.now()
	}
}

// Met is the cap that is met, or nil. Clocks are looked at when it is asked.
func (m *Meter) Met() *Met {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.check()
	return m.met
}

// Stop reports whether the task is to be ended now: a cap is met, and no tool is at
// work, or it was waited for long enough. Of one that is silent, or writes without end,
// nothing is waited for.
func (m *Meter) Stop() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.check()
	switch {
	case m.met == nil:
		return false
	case m.met.Cap == jobs.CapIdle || m.met.Cap == jobs.CapOutput || len(m.open) == 0:
		return true
	}
	return m.now().Sub(m.metAt) >= safeTime
}

// Use is what the agent has done so far.
func (m *Meter) Use() jobs.AgentUse {
	m.mu.Lock()
	defer m.mu.Unlock()
	use := m.use
	use.Model = cmp.Or(use.Model, m.model)
	use.Denied = slices.Clone(use.Denied)
	if u := m.events; u.Tokens() > 0 || u.USD > 0 {
		u.PricesOf = m.prices.Date
		use.Usage = &u
	}
	for _, t := range m.tools {
		use.Tools = append(use.Tools, *t)
	}
	slices.SortFunc(use.Tools, func(a, b jobs.ToolUse) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Name, b.Name))
	})
	return use
}
