package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"

	"berth/internal/link/session"
	"berth/internal/network"
	"berth/internal/network/broker"
	"berth/internal/network/credentials"
	"berth/internal/network/policy"
	"berth/jobs"
)

// Brokered are the credentials of a task, with their keys, and what ends it.
type Brokered struct {
	Credentials []broker.Credential
	Caps        jobs.Caps
	Prices      jobs.Prices
	// Met is told once of a cap that is met, with the figures.
	Met func(figures string)
	// Used, Before, Keep and Unkept are those of [broker.Options].
	Used, Before jobs.Usage
	Keep         func(jobs.Usage) error
	Unkept       func(error)
}

// Take takes the keys of a place's credentials out of the passed values, and gives each a
// placeholder. What remains is for the task, or for a backend's program, and for records:
// so no key is in them. Those whose keys are not there are the error.
func Take(passed []string, list []jobs.Credential) (taken []broker.Credential, rest []string, err error) {
	keys, rest := credentials.Part(passed)
	taken = Await(list)
	for i, c := range list {
		taken[i].Key = keys[c.Name]
	}
	return taken, rest, missing(keys, list)
}

// Await gives each credential a placeholder. Their keys come later, with [Egress.Give].
func Await(list []jobs.Credential) (out []broker.Credential) {
	for _, c := range list {
		out = append(out, broker.Credential{Credential: c, Placeholder: credentials.Placeholder()})
	}
	return out
}

// missing is the error of credentials whose keys are not there.
func missing(keys map[string]string, list []jobs.Credential) error {
	var names []string
	for _, c := range list {
		if keys[c.Name] == "" {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("the keys of the credentials %s are not there", strings.Join(names, ", "))
}

// Give hands over the keys of credentials that were opened without them, as they travel
// with passed values.
func (e *Egress) Give(passed []string, list []jobs.Credential) error {
	if e == nil || e.broker == nil {
		return errors.New("there are no credentials")
	}
	keys, _ := credentials.Part(passed)
	if err := missing(keys, list); err != nil {
		return err
	}
	return e.broker.Give(keys)
}

// upstreams is the policy of the broker's own connections: the servers of the credentials
// are allowed beside what the task is, and denials and bounds hold for them, too.
func upstreams(n jobs.Network, list []broker.Credential) (*policy.Policy, error) {
	n = n.Settled()
	n.Mode, n.Asked, n.Learn, n.Allow = jobs.NetworkAllow, "", false, slices.Clone(n.Allow)
	for _, c := range list {
		u, err := credentials.Upstream(c.Credential)
		if err != nil {
			return nil, err
		}
		n.Allow = append(n.Allow, net.JoinHostPort(u.Hostname(), portOf(u)))
	}
	p, _, err := network.Policies(n)
	return p, err
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return "443"
}

// openBroker begins to carry requests.
func (e *Egress) openBroker(b Brokered) (err error) {
	e.broker, err = broker.New(broker.Options{Credentials: b.Credentials, Caps: b.Caps, Prices: b.Prices, Used: b.Used, Before: b.Before,
		Keep: b.Keep, Unkept: b.Unkept, Dial: e.dialUpstream, Record: e.log.Request, Stop: func(m broker.Met) { b.Met(m.Reason) }})
	e.lent = b.Credentials
	return err
}

// Inside are the variables of the credentials for commands of a container, in which each
// of them is behind its port on loopback. They have placeholders, and no key.
func (e *Egress) Inside(s *session.Session) []string {
	if e == nil || s == nil {
		return nil
	}
	had := s.Guest().Network
	if had == nil || len(had.Ports) < len(e.lent) {
		return nil // of a phase that has none
	}
	var list []credentials.Inside
	for i, c := range e.lent {
		list = append(list, credentials.Inside{Credential: c.Credential, Port: int(had.Ports[i]), Placeholder: c.Placeholder})
	}
	return credentials.Env(list)
}

// Usage is what models were asked for; nil is that nothing was.
func (e *Egress) Usage() *jobs.Usage {
	if e == nil || e.broker == nil {
		return nil
	}
	if u := e.broker.Usage(); u.Requests+u.Refused > 0 {
		return &u
	}
	return nil
}

// Told is Usage without what answers under way have still to say.
func (e *Egress) Told() (u jobs.Usage) {
	if e == nil || e.broker == nil {
		return u
	}
	return e.broker.Told()
}

// Busy is how many requests of credentials are under way.
func (e *Egress) Busy() int {
	if e == nil || e.broker == nil {
		return 0
	}
	return e.broker.Busy()
}

// dialUpstream connects to the server of a credential.
func (e *Egress) dialUpstream(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return e.judge.Dial(ctx, jobs.PhaseCredentials, host, port)
}

// accountOf is the account of the room from which a connection is; nil is that of none.
func accountOf(f *session.Flow) *broker.Account {
	r := f.Room()
	if r == nil {
		return nil
	}
	return r.Keep(func() any { return &broker.Account{} }).(*broker.Account)
}

// serve has the broker answer what comes over a connection from inside. The pipe has
// deadlines, which a flow has not.
func (e *Egress) serve(ctx context.Context, credential string, f *session.Flow) {
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer func() { _ = near.Close() }() // the program has ended the connection, and waits for no answer
		_, _ = io.Copy(near, f)
	}()
	go func() {
		defer close(done)
		_, _ = io.Copy(f, near)
		_ = f.CloseWrite()
	}()
	e.broker.Serve(ctx, credential, accountOf(f), far)
	<-done
}
