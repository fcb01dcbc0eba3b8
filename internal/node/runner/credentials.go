package runner

import (
	"strings"

	"berth/internal/network/broker"
	"berth/internal/network/credentials"
	"berth/internal/node/container"
	"berth/internal/node/egress"
	"berth/jobs"
)

// takeCredentials takes the keys of credentials out of the passed values. What remains
// is for the task, or for a backend's program, and for records: so no key is in them.
func (r *attempt) takeCredentials(passed []string) (rest []string, err error) {
	keys, rest := credentials.Part(passed)
	var missing []string
	for _, c := range r.spec.Credentials {
		if keys[c.Name] == "" {
			missing = append(missing, c.Name)
		}
		r.credentials = append(r.credentials, broker.Credential{Credential: c, Key: keys[c.Name], Placeholder: credentials.Placeholder()})
	}
	if len(missing) > 0 {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Blame: jobs.BlameOther, Msg: "the keys of the credentials " + strings.Join(missing, ", ") + " are not there",
			Hint: "submit the task again: they are read then"}
	}
	return rest, nil
}

// brokered are the credentials whose requests are carried, and the caps; nil is none.
func (r *attempt) brokered() *egress.Brokered {
	if len(r.credentials) == 0 {
		return nil
	}
	return &egress.Brokered{Credentials: r.credentials, Caps: r.spec.Caps, Prices: r.spec.Prices, Met: r.capMet}
}

// inside are the variables of the credentials for commands of a container, in which each
// of them is behind its port on loopback. They have placeholders, and no key.
func (r *attempt) inside(c *container.Container) []string {
	ports := r.egress.Load().Ports(c.Session())
	var list []credentials.Inside
	for _, c := range r.credentials {
		if port := ports[c.Name]; port != 0 {
			list = append(list, credentials.Inside{Credential: c.Credential, Port: port, Placeholder: c.Placeholder})
		}
	}
	return credentials.Env(list)
}

// capMet ends the attempt because a cap is met, with its figures.
func (r *attempt) capMet(figures string) {
	r.stop.set(why{state: jobs.StateFailed, class: jobs.ClassTask, code: jobs.CodeCap, reason: figures,
		hint: "raise it in [caps], or with --max-requests, --max-tokens or --max-usd"})
}
