package egress

import (
	"berth/internal/network/policy"
	"berth/jobs"
)

// policies are those of a network's words.
func policies(n jobs.Network) (*policy.Policy, map[string]*policy.Policy, error) {
	task, err := policy.Compile(policy.Words{Mode: policy.Allow, Allow: n.Allow, Origin: "the task"})
	return task, nil, err
}
