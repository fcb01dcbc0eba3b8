package engine

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"berth/jobs"
)

// A build has the network that [network.build] says, and else its node's, within the bounds.
func TestBuildNetwork(t *testing.T) {

	bound := jobs.NetworkBound{Origin: "project P", Mode: "none"}
	lake := jobs.Profile{Name: "lake", Network: jobs.NetworkBound{Mode: "allow", Allow: []string{"a.example"}}}
	phase := func(p jobs.NetworkPhase) jobs.NetworkPhases { return jobs.NetworkPhases{Build: p} }
	for name, c := range map[string]struct {
		n    jobs.Network
		p    jobs.Profile
		mode string
		says string
	}{
		"nothing said":      {},
		"the task's":        {n: jobs.Network{Mode: "none"}},
		"none":              {n: jobs.Network{Phases: phase(jobs.NetworkPhase{Mode: "none"})}, mode: "none"},
		"a list":            {n: jobs.Network{Mode: "none", Phases: phase(jobs.NetworkPhase{Allow: []string{"pypi.org"}})}, mode: "allow"},
		"a project":         {n: jobs.Network{Bounds: []jobs.NetworkBound{bound}}, mode: "none"},
		"a project, open":   {n: jobs.Network{Bounds: []jobs.NetworkBound{bound}, Phases: phase(jobs.NetworkPhase{Mode: "open"})}, mode: "none"},
		"a profile":         {p: lake, mode: "allow"},
		"no rule":           {n: jobs.Network{Phases: phase(jobs.NetworkPhase{Allow: []string{"a b"}})}, says: "network.build: network of task"},
		"deny in open":      {n: jobs.Network{Bounds: []jobs.NetworkBound{{Origin: "project P", Deny: []string{"a"}}}}, says: "[network] deny of project P"},
		"the login's relay": {n: jobs.Network{Via: "login", Phases: phase(jobs.NetworkPhase{Mode: "allow"})}, says: "builds have no relay"},
	} {
		n, err := buildNetwork(jobs.Place{Network: c.n, Profile: c.p})
		if c.says != "" {
			if err == nil || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || n.Mode != c.mode || !reflect.DeepEqual(n.Phases, jobs.NetworkPhases{}) {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}
