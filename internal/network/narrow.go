package network

import (
	"cmp"
	"fmt"
	"slices"

	"berth/internal/network/policy"
	"berth/jobs"
)

// Narrow is the network of a job that another one has submitted to the same place, with a
// mode and a list of its own; of one that says neither it is the other's. More than that
// is refused by name, and the other's policy stays a bound all the same. An error is of
// kind [jobs.KindUsage]; origin names the other job.
func Narrow(p *jobs.Place, mode string, allow []string, origin string) (jobs.Network, error) {
	n := p.Network.Settled()
	if mode == "" && allow == nil {
		return p.Network, nil
	}
	refuse := func(format string, args ...any) (jobs.Network, error) {
		return jobs.Network{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf(format, args...),
			Hint: "the network of the task that submits bounds it"}
	}
	if mode == "" {
		mode = jobs.NetworkAllow
	}
	now := cmp.Or(n.Mode, jobs.NetworkOpen)
	switch {
	case !slices.Contains(jobs.NetworkModes, mode):
		return refuse("network %.40q is none of open, allow, none", mode)
	case allow != nil && mode != jobs.NetworkAllow:
		return refuse("network %s has no names that are allowed", mode)
	case !jobs.Within(mode, now):
		return refuse("network %s is more than %s", mode, now)
	case mode == now && allow == nil:
		return p.Network, nil
	case p.Can().Bare:
		return refuse("network %s: the backend %s has no container that could hold it", mode, p.Backend)
	case n.Learn && mode == jobs.NetworkAllow:
		return refuse("network allow: what this task reaches is being learned, and not known yet")
	case mode == jobs.NetworkAllow && allow == nil:
		return refuse("network allow has no names: say which are allowed")
	}
	have, err := compile(n, origin)
	if err != nil {
		return jobs.Network{}, err
	}
	for _, word := range allow {
		rules, err := policy.Parse(word)
		if err != nil {
			return refuse("network allow: %s", err)
		}
		for _, r := range rules {
			if why := have.Refuses(r); why != "" {
				return refuse("network allow %.100q is more than this task reaches: %s", word, why)
			}
		}
	}
	if own := (jobs.NetworkBound{Origin: origin, Mode: cmp.Or(n.Asked, now), Allow: n.Allow,
		Deny: n.Deny, Opaque: n.Opaque}); own.Mode != jobs.NetworkOpen || own.Deny != nil {
		n.Bounds = append(slices.Clone(n.Bounds), own)
	}
	n.Mode, n.Asked, n.Allow, n.Deny, n.Learn, n.Phases = mode, "", slices.Clone(allow), nil, false, jobs.NetworkPhases{}
	if mode == jobs.NetworkAllow {
		n.Via = cmp.Or(n.Via, p.Profile.Via)
	}
	return n.Settled(), nil
}
