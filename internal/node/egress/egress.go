package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/network"
	"berth/internal/network/judge"
	"berth/internal/network/policy"
	"berth/jobs"
)

// Options are what a place's network needs of its supervisor.
type Options struct {
	Network jobs.Network
	// Record takes what was decided. It may be called by several goroutines at once.
	Record func(judge.Entry)
	// Resolver and Dial are the way out; nil is this machine's own.
	Resolver judge.Resolver
	Dial     func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)
}

// Egress decides on what the commands of one attempt or environment reach.
type Egress struct {
	judge  *judge.Judge
	task   *policy.Policy
	phases map[string]*policy.Policy
}

// dialTime bounds one try to connect: a name may have several addresses.
const dialTime = 10 * time.Second

// Open returns nil where the network of each phase is the kernel's alone: open, or none.
func Open(o Options) (*Egress, error) {
	judged := o.Network.Mode == jobs.NetworkAllow
	for _, name := range jobs.NetworkPhaseNames {
		judged = judged || o.Network.Phase(name).Mode == jobs.NetworkAllow
	}
	if !judged {
		return nil, nil
	}
	task, phases, err := network.Policies(o.Network)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: err.Error(), Hint: "the words of a network: docs/network.md"}
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Dial == nil {
		d := &net.Dialer{Timeout: dialTime}
		o.Dial = func(ctx context.Context, family string, to netip.AddrPort) (net.Conn, error) {
			return d.DialContext(ctx, family, to.String())
		}
	}
	return &Egress{task: task, phases: phases, judge: judge.New(judge.Options{
		Policy: task, Phases: phases, Resolver: o.Resolver, Dial: o.Dial, Own: ownAddresses, Record: o.Record,
	})}, nil
}

// ownAddresses are those of this machine's interfaces.
func ownAddresses() (own []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own
}

// Wish is what the guest of a phase is to prepare.
func (e *Egress) Wish(phase string) wire.NetworkWish {
	w, p := wire.NetworkWish{Door: true}, e.of(phase)
	for _, l := range p.Literals() {
		w.Literals = append(w.Literals, wire.Literal{Prefix: l.String(), Ports: p.LiteralPorts(l)})
	}
	return w
}

func (e *Egress) of(phase string) *policy.Policy {
	if p := e.phases[phase]; p != nil {
		return p
	}
	return e.task
}

// Add allows more from now on.
func (e *Egress) Add(rules []policy.Rule) error { return e.judge.Add(rules...) }

// Phase is the network of the containers of a phase; "" is the task's.
func (e *Egress) Phase(name string) session.Network { return phase{e, name} }

type phase struct {
	e    *Egress
	name string
}

// Query asks the judge for a name.
func (p phase) Query(ctx context.Context, name string) wire.QueryAnswer {
	a := p.e.judge.Lookup(ctx, p.name, name)
	return wire.QueryAnswer{Allowed: a.Allowed, Ports: a.Ports}
}

// Flow has the judge carry a connection.
func (p phase) Flow(ctx context.Context, m wire.FlowMessage, f *session.Flow) {
	req := judge.Request{Phase: p.name, Host: m.Host, Port: m.Port, Proxy: m.Proxy}
	if m.Tell {
		req.Answer = func(d policy.Decision) { f.Tell(wire.FlowAnswer{Allowed: d.Allow, Rule: d.Rule, Hint: d.Hint}) }
	}
	p.e.judge.Flow(ctx, req, f)
}

// WithoutRoom tells whether a container whose guest could make no room is to be opened
// again without one, which n says then, with a note. Else it returns what err is to
// people.
func WithoutRoom(n *jobs.Network, err error) (note string, again bool, _ error) {
	var no *session.NoRoomError
	switch {
	case !errors.As(err, &no):
		return "", false, err
	case n.Transparent == jobs.TransparentAlways:
		return "", false, &jobs.Error{Kind: jobs.KindConfig, Msg: `[network] transparent = "always"`, Err: no,
			Hint: `with transparent = "auto" programs that know http_proxy reach what is allowed`}
	}
	n.Transparent = jobs.TransparentNever
	return "network: only programs that know http_proxy, https_proxy or all_proxy reach what is allowed: " + no.Error(), true, nil
}
