// Package network makes the policies of a place out of its record. What decides by
// them is package judge.
package network

import (
	"cmp"
	"fmt"

	"berth/internal/network/policy"
	"berth/jobs"
)

// Origin is that of a task's own policy; a phase's is "phase NAME".
const Origin = "task"

// Policies are the task's and those of the phases, all of which are named: one that
// says nothing has the task's. The network's bounds are bounds of each. An error names
// the word, its list and whoever said it.
func Policies(n jobs.Network) (task *policy.Policy, phases map[string]*policy.Policy, err error) {
	if task, err = compile(n, Origin); err != nil {
		return nil, nil, err
	}
	phases = map[string]*policy.Policy{}
	for _, name := range jobs.NetworkPhaseNames {
		phases[name] = task
		if n.Phases.Of(name).Silent() {
			continue
		}
		if phases[name], err = compile(n.Phase(name), "phase "+name); err != nil {
			return nil, nil, err
		}
	}
	return task, phases, nil
}

// compile makes one policy. Who asked for an open network and is bounded has the list of
// the first bound that has one: an open policy has no names for the doors to listen
// for, and more than this list is refused in any case.
func compile(n jobs.Network, origin string) (*policy.Policy, error) {
	n = n.Settled()
	own := policy.Words{Mode: cmp.Or(n.Asked, n.Mode, policy.Open), Allow: n.Allow, Deny: n.Deny, Opaque: n.Opaque, Origin: origin}
	open, from := own.Mode == policy.Open, ""
	if n.Learn {
		own.Mode = policy.Learn
	}
	bounds := make([]policy.Words, len(n.Bounds))
	for i, b := range n.Bounds {
		bounds[i] = policy.Words{Mode: cmp.Or(b.Mode, policy.Open), Allow: b.Allow, Deny: b.Deny, Opaque: b.Opaque, Origin: b.Origin}
		if _, err := policy.Compile(bounds[i]); err != nil {
			return nil, fmt.Errorf("network of %s: %w", b.Origin, err)
		}
		if open && from == "" && b.Mode == jobs.NetworkAllow {
			own.Mode, own.Allow, own.Opaque, from = policy.Allow, b.Allow, b.Opaque, b.Origin
		}
	}
	p, err := policy.Compile(own, bounds...)
	if err != nil {
		return nil, fmt.Errorf("network of %s: %w", origin, err)
	}
	for i := range p.Allow {
		p.Allow[i].From = from
	}
	return p, nil
}
