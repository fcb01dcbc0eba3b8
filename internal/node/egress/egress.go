package egress

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/network"
	"berth/internal/network/broker"
	"berth/internal/network/judge"
	"berth/internal/network/policy"
	"berth/internal/network/record"
	"berth/internal/network/wayout"
	"berth/jobs"
	"berth/jobs/store"
)

// Options are what a place's network needs of its supervisor.
type Options struct {
	Network jobs.Network
	Dir     string // of the attempt or the environment: what was decided stands there
	Added   string // of the job or the environment: where the user adds words
	// Brokered are the task's credentials; nil is none.
	Brokered *Brokered
}

// Egress decides on what the commands of one attempt or environment reach.
type Egress struct {
	judge  *judge.Judge
	task   *policy.Policy
	phases map[string]*policy.Policy
	log    *record.Log
	way    io.Closer

	broker *broker.Broker      // nil without credentials
	lent   []broker.Credential // these

	looking sync.Mutex
	look    func()

	mu       sync.Mutex
	open     []*session.Session // with rooms
	literals []wire.Literal     // that the user has added
}

// Open returns nil where the network of each phase is the kernel's alone, open or none,
// and there are no credentials.
func Open(o Options) (*Egress, error) {
	judged := o.Network.Mode == jobs.NetworkAllow || o.Brokered != nil
	for _, name := range jobs.NetworkPhaseNames {
		judged = judged || o.Network.Phase(name).Mode == jobs.NetworkAllow
	}
	if !judged {
		return nil, nil
	}
	task, phases, err := network.Policies(o.Network)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: err.Error(), Hint: "the words of a network: berth help --page network"}
	}
	if o.Brokered != nil {
		if phases[jobs.PhaseCredentials], err = upstreams(o.Network, o.Brokered.Credentials); err != nil {
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: err.Error()}
		}
	}
	e := &Egress{task: task, phases: phases}
	if e.log, err = record.Open(filepath.Join(o.Dir, store.FileNetwork)); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "begin the record of the network", Err: err, Hint: "is there space left? df -h " + o.Dir}
	}
	way, closer, err := wayout.Open(o.Network, o.Dir)
	if err != nil {
		_ = e.log.Close()
		return nil, err
	}
	e.way = closer
	if strings.HasPrefix(o.Network.Via, jobs.ViaProxy) {
		e.log.Note("the site's proxy resolves names: that one leads to a private address, or changes, is not seen")
	}
	jo := judge.Options{Policy: task, Phases: phases, Record: e.log.Record,
		Limits: judge.Limits{Up: int64(o.Network.MaxUp), Down: int64(o.Network.MaxDown), Total: o.Network.MaxTime}}
	wayout.Use(&jo, way)
	e.judge = judge.New(jo)
	if o.Brokered != nil {
		if err := e.openBroker(*o.Brokered); err != nil {
			_ = e.Close()
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: err.Error()}
		}
	}
	e.look = e.log.Watch(o.Added, e.add)
	e.Look()
	return e, nil
}

// Look takes up the words that the user has added since the last one. A nil Egress has
// none.
func (e *Egress) Look() {
	if e != nil {
		e.looking.Lock()
		defer e.looking.Unlock()
		e.look()
	}
}

// add allows more, and has the rooms that are open reach new addresses.
func (e *Egress) add(rules []policy.Rule) error {
	if err := e.judge.Add(rules...); err != nil {
		return err
	}
	more := literals(&policy.Policy{Mode: policy.Allow, Allow: rules})
	if len(more) == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.literals = append(e.literals, more...)
	for _, s := range e.open {
		_ = s.AddLiterals(more) // of one that has ended
	}
	return nil
}

func literals(p *policy.Policy) (out []wire.Literal) {
	for _, l := range p.Literals() {
		out = append(out, wire.Literal{Prefix: l.String(), Ports: p.LiteralPorts(l)})
	}
	return out
}

// Opened notes how the commands of a container reach the judge.
func (e *Egress) Opened(s *session.Session) {
	had := s.Guest().Network
	switch {
	case e == nil || had == nil:
	case had.Rooms:
		e.log.Door(jobs.DoorTransparent)
	case !had.Room:
		e.log.Door(jobs.DoorProxy)
	default:
		e.log.Door(jobs.DoorTransparent)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.open = append(e.open, s)
	}
}

// Close ends all connections, and returns what was done with the network. A nil Egress
// has nothing to say.
func (e *Egress) Close() *jobs.NetworkUse {
	if e == nil {
		return nil
	}
	if e.broker != nil {
		e.broker.Close()
	}
	_ = e.way.Close()
	_ = e.log.Close()
	return e.log.Summary()
}

// Of is what decides on the network of the containers of a phase, and what their guests
// are to prepare; "" is the task's. It is nil where there is nothing to decide, as of a
// nil Egress.
func (e *Egress) Of(name string) (session.Network, wire.NetworkWish) {
	var w wire.NetworkWish
	if e == nil {
		return nil, w
	}
	if name == "" {
		for _, c := range e.lent {
			w.Credentials = append(w.Credentials, c.Name)
		}
	}
	if e.judged(name) {
		e.mu.Lock()
		defer e.mu.Unlock()
		w.Door, w.Literals = true, append(literals(e.of(name)), e.literals...)
	}
	if !w.Door && len(w.Credentials) == 0 {
		return nil, w
	}
	w.Take = true
	return phase{e, name}, w
}

func (e *Egress) of(phase string) *policy.Policy {
	if p := e.phases[phase]; p != nil {
		return p
	}
	return e.task
}

// judged reports whether the connections of a phase's commands come here.
func (e *Egress) judged(phase string) bool {
	mode := e.of(phase).Mode
	return mode == policy.Allow || mode == policy.Learn
}

type phase struct {
	e    *Egress
	name string
}

// Query asks the judge for a name.
func (p phase) Query(ctx context.Context, name string) wire.QueryAnswer {
	if !p.e.judged(p.name) {
		return wire.QueryAnswer{}
	}
	a := p.e.judge.Lookup(ctx, p.name, name)
	return wire.QueryAnswer{Allowed: a.Allowed, Ports: a.Ports}
}

// Flow has the judge carry a connection.
func (p phase) Flow(ctx context.Context, m wire.FlowMessage, f *session.Flow) {
	switch {
	case m.Credential != "" && p.name == "" && p.e.broker != nil:
		p.e.serve(ctx, m.Credential, f)
		return
	case m.Credential != "" || !p.e.judged(p.name):
		return
	}
	req := judge.Request{Phase: p.name, Host: m.Host, Port: m.Port, Proxy: m.Proxy}
	if m.Tell {
		req.Answer = func(d policy.Decision) {
			f.Tell(wire.FlowAnswer{Allowed: d.Allow, Rule: d.Rule, Hint: d.Hint, NoWay: d.NoWay})
		}
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
