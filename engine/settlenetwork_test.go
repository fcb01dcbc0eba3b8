package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/jobs"
)

// What a backend cannot hold of a network is refused, and named; the profile's bound and
// its way out count.
func TestSettleNetwork(t *testing.T) {
	list := func(words ...string) jobs.Network { return jobs.Network{Mode: "allow", Allow: words} }
	bound := func(mode string, allow ...string) jobs.NetworkBound {
		return jobs.NetworkBound{Origin: "project P", Mode: mode, Allow: allow}
	}
	lake := jobs.Profile{Name: "lake", Network: jobs.NetworkBound{Origin: "profile lake", Mode: "none"}}
	pond := jobs.NetworkBound{Origin: "profile pond", Mode: "allow", Allow: []string{"a"}}
	for name, c := range map[string]struct {
		backend string
		n       jobs.Network
		profile jobs.Profile
		code    int
		says    string // in the error
		want    *jobs.Network
	}{
		"open":                   {want: &jobs.Network{}},
		"a profile":              {profile: lake, want: &jobs.Network{Mode: "none", Asked: "open", Bounds: []jobs.NetworkBound{lake.Network}}},
		"a list":                 {n: list("pypi.org"), want: &jobs.Network{Mode: "allow", Allow: []string{"pypi.org"}}},
		"a room in docker":       {backend: "docker", n: jobs.Network{Mode: "allow", Transparent: "always"}, code: 78, says: `[network] transparent = "always": not available`},
		"a way out":              {n: list("pypi.org"), profile: jobs.Profile{Via: "login"}, want: &jobs.Network{Mode: "allow", Allow: []string{"pypi.org"}, Via: "login"}},
		"beside another bound":   {n: jobs.Network{Via: "node", Transparent: "never"}.Within(bound("open")), profile: jobs.Profile{Via: "login", Network: pond}, want: &jobs.Network{Mode: "allow", Asked: "open", Transparent: "never", Bounds: []jobs.NetworkBound{bound("open"), pond}}},
		"the user's way out":     {n: jobs.Network{Mode: "allow", Via: "node"}, profile: jobs.Profile{Via: "login"}, want: &jobs.Network{Mode: "allow"}},
		"a way out, and none":    {n: jobs.Network{Mode: "none", Via: "login"}, want: &jobs.Network{Mode: "none"}},
		"no rule":                {n: list("a b"), code: 2, says: `network of task: allow: "a b": `},
		"a network with no port": {n: list("10.0.0.0/8"), code: 2, says: "a network needs a port: 10.0.0.0/8:443"},
		"done":                   {n: jobs.Network{Phases: jobs.NetworkPhases{Done: jobs.NetworkPhase{Mode: "none"}}}, want: &jobs.Network{Phases: jobs.NetworkPhases{Done: jobs.NetworkPhase{Mode: "none"}}}},
		"a build":                {n: jobs.Network{Phases: jobs.NetworkPhases{Build: jobs.NetworkPhase{Mode: "none"}}}, want: &jobs.Network{}},
		"a verifier":             {n: jobs.Network{Phases: jobs.NetworkPhases{Verify: jobs.NetworkPhase{Mode: "none"}}}, want: &jobs.Network{Phases: jobs.NetworkPhases{Verify: jobs.NetworkPhase{Mode: "none"}}}},
		"deny":                   {n: jobs.Network{Deny: []string{"a.example"}}, code: 78, says: `[network] deny: not held in the mode "open"`},
		"deny of a bound":        {n: jobs.Network{Bounds: []jobs.NetworkBound{{Origin: "project P", Deny: []string{"a"}}}}, code: 78, says: "[network] deny of project P: not held"},
		"deny of a phase":        {n: jobs.Network{Mode: "none", Phases: jobs.NetworkPhases{Done: jobs.NetworkPhase{Mode: "open", Deny: []string{"a"}}}}, code: 78, says: "deny"},
		"deny, and none":         {n: jobs.Network{Mode: "none", Deny: []string{"a.example"}}, want: &jobs.Network{Mode: "none"}},
		"a bare host":            {backend: "local", profile: lake, code: 78, says: "[network] mode of profile lake: not available on the backend local"},
		"a bare host, and deny":  {backend: "local", n: jobs.Network{Mode: "none", Deny: []string{"a"}}, code: 78, says: "[network] mode: not available on the backend local"},

		"service":                 {backend: "modal", n: list("pypi.org", "*.example.com", "10.0.0.0/8", "192.0.2.1"), want: &jobs.Network{Mode: "allow", Allow: []string{"pypi.org", "*.example.com", "10.0.0.0/8", "192.0.2.1"}}},
		"service, a way out":      {backend: "modal", n: list(), profile: jobs.Profile{Via: "login"}, want: &jobs.Network{Mode: "allow"}},
		"service, a bound":        {backend: "modal", n: jobs.Network{Bounds: []jobs.NetworkBound{bound("", "a")}}, want: &jobs.Network{Mode: "allow", Asked: "open", Bounds: []jobs.NetworkBound{bound("allow", "a")}}},
		"service, none":           {backend: "modal", n: jobs.Network{Allow: []string{"@pip"}, Bounds: []jobs.NetworkBound{bound("none")}}, want: &jobs.Network{Mode: "none", Asked: "allow", Allow: []string{"@pip"}, Bounds: []jobs.NetworkBound{bound("none")}}},
		"service, two lists":      {backend: "modal", n: jobs.Network{Allow: []string{"a"}, Bounds: []jobs.NetworkBound{bound("", "a")}}, code: 78, says: "[network] of project P, beside another list"},
		"service, two bounds":     {backend: "modal", n: jobs.Network{Bounds: []jobs.NetworkBound{bound("", "a"), bound("", "a")}}, code: 78, says: "beside another list"},
		"service, a bundle":       {backend: "modal", n: list("@pip"), code: 78, says: "the bundle @pip: not available on the backend modal"},
		"service, a port":         {backend: "modal", n: list("a.example:22"), code: 78, says: "the port in a.example:22"},
		"service, a bound's port": {backend: "modal", n: jobs.Network{Bounds: []jobs.NetworkBound{bound("", "a:1")}}, code: 78, says: "the port in a:1"},
		"service, deny":           {backend: "modal", n: jobs.Network{Mode: "allow", Deny: []string{"a"}}, code: 78, says: "[network] deny: not available"},
		"service, opaque":         {backend: "modal", n: jobs.Network{Mode: "allow", Opaque: []string{"a:1"}}, code: 78, says: "[network] opaque"},
		"service, bytes":          {backend: "modal", n: jobs.Network{Mode: "allow", MaxDown: 1}, code: 78, says: "[network] max_up, max_down or max_time"},
		"service, transparent":    {backend: "modal", n: jobs.Network{Mode: "allow", Transparent: "never"}, code: 78, says: "[network] transparent"},
		"service, a phase":        {backend: "modal", n: jobs.Network{Phases: jobs.NetworkPhases{Verify: jobs.NetworkPhase{Mode: "none"}}}, code: 78, says: "[network] of a phase"},
	} {
		if c.backend == "" {
			c.backend = jobs.BackendBwrap
		}
		p := jobs.Place{Backend: c.backend, Network: c.n, Profile: c.profile}
		err := settleNetwork(&p)
		if err == nil {
			err = refuse(&p, wanted{})
		}
		switch {
		case c.want == nil:
			if err == nil || jobs.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %d, %v", name, jobs.CodeOf(err), err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			if diff := cmp.Diff(*c.want, p.Network); diff != "" {
				t.Errorf("%s\n%s", name, diff)
			}
		}
	}
}
