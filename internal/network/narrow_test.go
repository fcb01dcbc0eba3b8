package network

import (
	"slices"
	"strings"
	"testing"

	"berth/internal/network/policy"
	"berth/jobs"
)

// TestNarrow: a child has its parent's network, or what it asked for within that; more is
// refused by name.
func TestNarrow(t *testing.T) {
	site := jobs.NetworkBound{Origin: "site file x", Mode: jobs.NetworkAllow, Allow: []string{"*.example.org", "a.test"}}
	list := jobs.Network{Mode: jobs.NetworkAllow, Allow: []string{"*.example.org", "b.test"}, Deny: []string{"bad.example.org"}, Bounds: []jobs.NetworkBound{site}}
	bounded := jobs.Network{Bounds: []jobs.NetworkBound{site}}
	for _, c := range []struct {
		name    string
		of      jobs.Network
		backend string
		mode    string
		allow   []string
		want    string // its mode, or the error
		reaches []string
		refuses []string
	}{
		{"nothing is said", list, "", "", nil, "allow", []string{"x.example.org"}, []string{"b.test", "bad.example.org"}},
		{"none", list, "", "none", nil, "none", nil, []string{"x.example.org"}},
		{"the same mode", list, "", "allow", nil, "allow", []string{"y.example.org"}, nil},
		{"one name", list, "", "allow", []string{"x.example.org"}, "allow", []string{"x.example.org"}, []string{"y.example.org", "bad.example.org", "b.test"}},
		{"a list alone", list, "", "", []string{"*.x.example.org"}, "allow", []string{"a.x.example.org"}, []string{"x.example.org"}},
		{"its parent's deny holds", list, "", "", []string{"*.example.org"}, "allow", []string{"a.example.org"}, []string{"bad.example.org"}},
		{"of an open one", jobs.Network{}, "", "allow", []string{"a.test"}, "allow", []string{"a.test"}, []string{"b.test"}},
		{"open of an open one", jobs.Network{}, "", "open", nil, "", nil, nil},
		{"of an open one that is bounded", bounded, "", "allow", []string{"a.test"}, "allow", []string{"a.test"}, []string{"x.example.org"}},
		{"nothing of none", jobs.Network{Mode: jobs.NetworkNone}, "", "none", nil, "none", nil, []string{"a.test"}},
		{"none without a container", jobs.Network{}, jobs.BackendLocal, "none", nil, "the backend local has no container", nil, nil},
		{"open", list, "", "open", nil, "network open is more than allow", nil, nil},
		{"open of a bounded one", bounded, "", "open", nil, "network open is more than allow", nil, nil},
		{"allow of none", jobs.Network{Mode: jobs.NetworkNone}, "", "allow", []string{"a.test"}, "network allow is more than none", nil, nil},
		{"a name alone of none", jobs.Network{Mode: jobs.NetworkNone}, "", "", []string{"a.test"}, "network allow is more than none", nil, nil},
		{"another name", list, "", "", []string{"x.example.org", "evil.test"}, `network allow "evil.test" is more than this task reaches: no rule allows all of evil.test`, nil, nil},
		{"a wider one", list, "", "", []string{"*.org"}, "is more than this task reaches", nil, nil},
		{"another port", list, "", "", []string{"x.example.org:22"}, "no rule allows all of x.example.org:22", nil, nil},
		{"what the site refuses", list, "", "", []string{"b.test"}, `network allow "b.test" is more than this task reaches`, nil, nil},
		{"what is denied", list, "", "", []string{"bad.example.org"}, "it is denied by bad.example.org", nil, nil},
		{"what is no word", list, "", "", []string{"http://x"}, "it is a URL", nil, nil},
		{"an escape", list, "", "", []string{"x\x1b[2J"}, `network allow: "x\x1b`, nil, nil},
		{"names of none", list, "", "none", []string{"x.example.org"}, "network none has no names", nil, nil},
		{"another mode", list, "", "host", nil, `network "host" is none of open, allow, none`, nil, nil},
		{"no names", jobs.Network{}, "", "allow", nil, "network allow has no names", nil, nil},
		{"of one that learns", jobs.Network{Learn: true}, "", "", []string{"x.example.org"}, "being learned", nil, nil},
	} {
		p := &jobs.Place{Backend: jobs.BackendSingularity, Network: c.of}
		if c.backend != "" {
			p.Backend = c.backend
		}
		n, err := Narrow(p, c.mode, c.allow, "job 1")
		if err != nil {
			if !strings.Contains(err.Error(), c.want) || jobs.KindOf(err) != jobs.KindUsage || strings.ContainsRune(err.Error(), 0x1b) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if n.Settled().Mode != c.want {
			t.Errorf("%s: %+v, want %q", c.name, n, c.want)
			continue
		}
		task, _, err := Policies(n)
		if err != nil {
			t.Error(err)
		}
		for _, name := range slices.Concat(c.reaches, c.refuses) {
			if d := task.Decide(policy.Request{Name: name, Port: 443}); d.Allow != slices.Contains(c.reaches, name) {
				t.Errorf("%s: %s: %+v", c.name, name, d)
			}
		}
	}
}

// TestNarrowPhases: a phase of the parent's may reach more than the task, and is not the
// child's.
func TestNarrowPhases(t *testing.T) {
	p := &jobs.Place{Backend: jobs.BackendSingularity, Network: jobs.Network{Mode: jobs.NetworkAllow, Allow: []string{"a.test"}, Phases: jobs.NetworkPhases{Verify: jobs.NetworkPhase{Mode: jobs.NetworkOpen}}}}
	n, err := Narrow(p, jobs.NetworkNone, nil, "job 1")
	if err != nil || n.Phase(jobs.PhaseVerify).Mode != jobs.NetworkNone {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err = Narrow(p, "", []string{"a.test"}, "job 1"); err != nil || n.Phase(jobs.PhaseVerify).Mode != jobs.NetworkAllow {
		t.Errorf("%+v, %v", n, err)
	}
}
