package runner

import (
	"context"
	"net"
	"strings"

	"berth/internal/network/credentials"
	"berth/jobs"
)

// Broker carries the requests of an attempt's credentials. Package broker has one,
// which speaks HTTP.
type Broker interface {
	// Serve answers the requests of a connection from inside, and closes it.
	Serve(ctx context.Context, credential string, conn net.Conn)
	Usage() jobs.Usage
	Close()
}

// takeCredentials takes the keys of credentials out of the passed values. What remains
// is for the task, or for a backend's program, and for records: so no key is in them.
func (r *attempt) takeCredentials(passed []string) (rest []string, err error) {
	r.brokered, rest = credentials.Part(passed)
	var missing []string
	for _, c := range r.spec.Credentials {
		if r.brokered[c.Name] == "" {
			missing = append(missing, c.Name)
		}
	}
	switch {
	case len(missing) > 0:
		return nil, &jobs.Error{Kind: jobs.KindInfra, Blame: jobs.BlameOther, Msg: "the keys of the credentials " + strings.Join(missing, ", ") + " are not there",
			Hint: "submit the task again: they are read then"}
	case len(r.spec.Credentials) > 0 && r.broker == nil:
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "credentials are not carried by this version of berth", Hint: "leave credentials out"}
	}
	return rest, nil
}

// inside are the credentials as commands have them, each behind its port on loopback.
func (r *attempt) inside(ports map[string]int, placeholders map[string]string) []string {
	var list []credentials.Inside
	for _, c := range r.spec.Credentials {
		list = append(list, credentials.Inside{Credential: c, Port: ports[c.Name], Placeholder: placeholders[c.Name]})
	}
	return credentials.EnvAll(list)
}

// capMet ends the attempt because a cap is met, with its figures.
func (r *attempt) capMet(figures string) {
	r.stop.set(why{state: jobs.StateFailed, class: jobs.ClassTask, code: jobs.CodeCap, reason: figures,
		hint: "raise it in [caps], or with --max-requests, --max-tokens or --max-usd"})
}

// usage is what models were asked for; nil is that nothing was.
func (r *attempt) usage() *jobs.Usage {
	if r.broker == nil {
		return nil
	}
	if u := r.broker.Usage(); u.Requests+u.Refused > 0 {
		return &u
	}
	return nil
}
