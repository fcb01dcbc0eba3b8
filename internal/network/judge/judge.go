package judge

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/network/policy"
)

// A Resolver looks names up, as *net.Resolver does. A name with a dot in it is given
// with a final dot, so that no search list is applied.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Limits bound what a task may use; 0 is the default.
type Limits struct {
	Flows    int           // at once: 1,000
	FlowRate int           // a second: 2,000. More wait
	Lookups  int           // names that are new, a second: 50. More wait for up to 2 s and are then refused
	Names    int           // of an attempt: 10,000
	Up, Down int64         // bytes of a name; 0 is no bound
	Idle     time.Duration // of a flow: 15 min
	Total    time.Duration // of a flow, from its begin to its end; 0 is no bound
	First    time.Duration // until the first bytes are complete: 30 s
	Resolve  time.Duration // of a name: 10 s
	Connect  time.Duration // to all addresses of a name: 30 s
	Way      time.Duration // until there is a way out: 30 s
}

func (l Limits) settled() Limits {
	orInt := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	orTime := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	orInt(&l.Flows, 1000)
	orInt(&l.FlowRate, 2000)
	orInt(&l.Lookups, 50)
	orInt(&l.Names, 10000)
	orTime(&l.Idle, 15*time.Minute)
	orTime(&l.First, 30*time.Second)
	orTime(&l.Resolve, 10*time.Second)
	orTime(&l.Connect, 30*time.Second)
	orTime(&l.Way, 30*time.Second)
	return l
}

// lookupWait is how long a name that is new waits for its turn: programs ask again
// after 5 s.
const lookupWait = 2 * time.Second

// Options are what a judge needs of its surroundings. Policy, Resolver and Dial are
// required: a resolver and a dialer of package net are most of what a program grows by.
type Options struct {
	Policy *policy.Policy
	// Phases are policies of phases that have their own.
	Phases   map[string]*policy.Policy
	Resolver Resolver
	// Dial connects to an address. What it returns has CloseWrite
	// where one direction can end before the other.
	Dial func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)
	// DialName connects to a name that is allowed, where what connects is what resolves: its
	// addresses cannot be judged, which the entry says. Addresses that were asked for as such
	// are judged and go to Dial. May be nil.
	DialName func(ctx context.Context, host string, port uint16) (net.Conn, error)
	// Ready waits until there is a way out, or ctx ends. An error that is [ErrNoWay] is
	// told as one that may be over later. May be nil.
	Ready func(ctx context.Context) error
	// Own are the addresses of this machine's interfaces. They are asked for once in each flow.
	Own    func() []netip.Addr
	Record func(Entry) // may be called by several goroutines at once
	Limits Limits
}

// ErrNoWay is an error of a resolver or dialer that has no connection of its own at the
// moment.
var ErrNoWay = errors.New("there is no way out")

type openedKey struct{}

// Opened reports, to Dial, that a rule with the address itself has opened one that is
// refused otherwise.
func Opened(ctx context.Context) bool {
	opened, _ := ctx.Value(openedKey{}).(bool)
	return opened
}

// A Judge decides, resolves, dials and copies. It is safe for concurrent use.
type Judge struct {
	o        Options
	policies atomic.Pointer[policies]
	flows    atomic.Int64
	pace     pacer
	asks     pacer
	recent   atomic.Pointer[flow] // the last to have had a byte from its server

	mu    sync.Mutex
	names map[string]*usage
}

// policies are those of all phases; it is replaced, never changed.
type policies struct {
	task   *policy.Policy
	phases map[string]*policy.Policy
}

func (p *policies) of(phase string) *policy.Policy {
	if own := p.phases[phase]; own != nil {
		return own
	}
	return p.task
}

// usage is what a name has used.
type usage struct{ up, down atomic.Int64 }

// New returns a judge.
func New(o Options) *Judge {
	o.Limits = o.Limits.settled()
	if o.Own == nil {
		o.Own = func() []netip.Addr { return nil }
	}
	if o.Record == nil {
		o.Record = func(Entry) {}
	}
	j := &Judge{o: o, names: map[string]*usage{}}
	j.pace.every = time.Second / time.Duration(o.Limits.FlowRate)
	j.asks.every = time.Second / time.Duration(o.Limits.Lookups)
	j.policies.Store(&policies{o.Policy, o.Phases})
	return j
}

// Add allows more while flows run, in all phases whose network is not off. Denials
// and bounds stay above it.
func (j *Judge) Add(rules ...policy.Rule) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	old, added := j.policies.Load(), false
	add := func(p *policy.Policy) *policy.Policy {
		if p.Mode == policy.None {
			return p
		}
		added = true
		return p.With(rules...)
	}
	now := &policies{task: add(old.task), phases: map[string]*policy.Policy{}}
	for name, p := range old.phases {
		now.phases[name] = add(p)
	}
	if !added {
		return errors.New("the network is off: no rule opens it while the job runs")
	}
	j.policies.Store(now)
	return nil
}

// An Answer is that to a question for a name.
type Answer struct {
	Name    string // normalised
	Allowed bool
	Ports   []uint16 // on which it may be reached
	Rule    string
	Hint    string // of a refusal
	Limited bool   // it is refused by a limit, and may be allowed later
}

// Lookup judges a question for a name. It does not resolve it. The name of an
// allowed answer is counted.
func (j *Judge) Lookup(ctx context.Context, phase, host string) Answer {
	e := Entry{Time: time.Now().UTC(), Phase: phase, Decision: Denied}
	name, ok := policy.Normalise(host)
	if !ok {
		e.Reason = noHost(host)
		j.o.Record(e)
		return Answer{Hint: e.Reason}
	}
	e.Name = name
	p := j.policies.Load().of(phase)
	ports := p.Ports(name)
	port := uint16(443)
	if ports != nil {
		port = ports[0]
	}
	d := p.Decide(policy.Request{Name: name, Port: port})
	e.Rule, e.Origin = d.Rule, d.Origin
	if ports == nil {
		e.After, e.Hint = j.redirected(phase, name, d.Hint)
		e.Word = d.Word
		j.o.Record(e)
		return Answer{Name: name, Rule: d.Rule, Hint: e.Hint}
	}
	_, first, err := j.count(ctx, name)
	if err != nil {
		e.Reason = err.Error()
		j.o.Record(e)
		return Answer{Name: name, Rule: d.Rule, Hint: e.Reason, Limited: true}
	}
	if first {
		e.Decision = Allowed
		j.o.Record(e)
	}
	return Answer{Name: name, Allowed: true, Ports: ports, Rule: d.Rule}
}

// count finds the usage of a name, and makes it after its turn has come.
func (j *Judge) count(ctx context.Context, name string) (u *usage, first bool, err error) {
	if u, first, err = j.usage(name, false); u != nil || err != nil {
		return u, first, err
	}
	if !j.asks.wait(ctx, lookupWait, j.o.Limits.Lookups) {
		return nil, false, limit("new names a second", j.o.Limits.Lookups)
	}
	return j.usage(name, true)
}

func (j *Judge) usage(name string, create bool) (u *usage, first bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch u = j.names[name]; {
	case u != nil:
		return u, false, nil
	case len(j.names) >= j.o.Limits.Names:
		return nil, false, limit("names of this attempt", j.o.Limits.Names)
	case create:
		u = new(usage)
		j.names[name] = u
	}
	return u, u != nil, nil
}

func limit(what string, value int) error {
	return errors.New("limit: " + what + " (" + strconv.Itoa(value) + ")")
}

// noHost says that it is no name, in characters that a terminal may show.
func noHost(host string) string {
	if len(host) > 64 {
		host = host[:64]
	}
	return "not a host name: " + strconv.QuoteToASCII(host)
}

// redirectTime is how soon after an answer of an allowed server a refusal is taken to
// follow from it.
const redirectTime = 2 * time.Second

// redirected finds the allowed name whose answer most likely led to a refused host, and
// says so in the hint.
func (j *Judge) redirected(phase, host, hint string) (after, better string) {
	f := j.recent.Load()
	if f == nil || f.name == "" || f.name == host || f.req.Phase != phase || time.Since(time.Unix(0, f.answered.Load())) > redirectTime {
		return "", hint
	}
	return f.name, f.name + ", which is allowed, led to " + host + ", which is not: " + hint
}

// A pacer lets through one in each interval, and a second's worth at once.
type pacer struct {
	every time.Duration
	mu    sync.Mutex
	next  time.Time
}

// wait waits for its turn, and is false when that would be later than max.
func (p *pacer) wait(ctx context.Context, max time.Duration, burst int) bool {
	p.mu.Lock()
	now := time.Now()
	if floor := now.Add(-time.Duration(burst-1) * p.every); p.next.Before(floor) {
		p.next = floor
	}
	turn := p.next.Sub(now)
	if turn > max {
		p.mu.Unlock()
		return false
	}
	p.next = p.next.Add(p.every)
	p.mu.Unlock()
	if turn <= 0 {
		return true
	}
	t := time.NewTimer(turn)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
