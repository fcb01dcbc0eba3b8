package network

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"berth/internal/network/policy"
	"berth/jobs"
)

func must(t *testing.T, n jobs.Network) (*policy.Policy, map[string]*policy.Policy) {
	t.Helper()
	task, phases, err := Policies(n)
	if err != nil || len(phases) != len(jobs.NetworkPhaseNames) {
		t.Fatalf("%+v: %v", n, err)
	}
	return task, phases
}

// asked are the names on port 443 that a policy allows.
func asked(p *policy.Policy, names ...string) string {
	return strings.Join(slices.DeleteFunc(names, func(name string) bool { return !p.Decide(policy.Request{Name: name, Port: 443}).Allow }), " ")
}

// A phase has its own policy or the task's; the bounds hold in all, whatever they are.
func TestPolicies(t *testing.T) {
	n := jobs.Network{Allow: []string{"a.example", "b.example", "bad.example"}, Deny: []string{"bad.example"}, Phases: jobs.NetworkPhases{
		Done: jobs.NetworkPhase{Allow: []string{"c.example", "bad.example"}}, Build: jobs.NetworkPhase{Mode: "none"},
	}}.Within(jobs.NetworkBound{Origin: "project P", Deny: []string{"b.example"}}).
		Within(jobs.NetworkBound{Origin: "site S", Allow: []string{"a.example", "b.example", "c.example", "bad.example"}})
	task, phases := must(t, n)
	names := []string{"a.example", "b.example", "bad.example", "c.example", "d.example"}
	for name, want := range map[string]string{jobs.PhaseDone: "c.example", jobs.PhaseBuild: "", jobs.PhaseVerify: "a.example"} {
		if got := asked(phases[name], slices.Clone(names)...); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := asked(task, slices.Clone(names)...); got != "a.example" || phases[jobs.PhaseVerify] != task {
		t.Errorf("the task: %q", got)
	}
	for name, origin := range map[string]string{"bad.example": Origin, "b.example": "project P", "d.example": "site S"} {
		if d := task.Decide(policy.Request{Name: name, Port: 443}); d.Allow || d.Origin != origin {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// An open network within a list has that list, which its user cannot make longer: the
// bound stays. Its deny holds, and a door knows for which names to listen.
func TestOpenWithinList(t *testing.T) {
	bound := jobs.NetworkBound{Origin: "project P", Allow: []string{"a.example:22,443", "b.example", "10.0.0.7:443"}, Opaque: []string{"a.example:22"}}
	task, _ := must(t, jobs.Network{Deny: []string{"b.example"}}.Within(bound))
	d := task.Decide(policy.Request{Name: "a.example", Port: 22})
	if !d.Allow || !d.Opaque || d.Origin != "project P" || !slices.Equal(task.Ports("a.example"), []uint16{22, 443}) || len(task.Literals()) != 1 {
		t.Errorf("%+v, ports %v, literals %v", d, task.Ports("a.example"), task.Literals())
	}
	if got := asked(task, "a.example", "b.example", "c.example"); got != "a.example" {
		t.Errorf("allowed: %q", got)
	}
	if d := task.Decide(policy.Request{Addr: netip.MustParseAddr("10.0.0.7"), Port: 443}); !d.Allow {
		t.Errorf("an address of the bound: %+v", d)
	}
	more, err := policy.Parse("c.example")
	if err != nil || task.With(more...).Decide(policy.Request{Name: "c.example", Port: 443}).Allow {
		t.Errorf("a rule more was stronger than the bound: %v", err)
	}
	if task, _ := must(t, jobs.Network{}.Within(bound).Within(jobs.NetworkBound{Origin: "site S", Mode: "none"})); asked(task, "a.example") != "" {
		t.Error("none as a bound allows something")
	}
}

// Learning allows names, within the bounds, and no private address.
func TestLearn(t *testing.T) {
	task, phases := must(t, jobs.Network{Learn: true, Phases: jobs.NetworkPhases{Done: jobs.NetworkPhase{Mode: "none"}}}.
		Within(jobs.NetworkBound{Origin: "site S", Deny: []string{"*.bad.example"}}))
	if got := asked(task, "any.example", "x.bad.example"); got != "any.example" || phases[jobs.PhaseVerify] != task || asked(phases[jobs.PhaseDone], "any.example") != "" {
		t.Errorf("%q", got)
	}
	if task.Decide(policy.Request{Name: "any.example", Addr: netip.MustParseAddr("192.168.1.1"), Port: 443}).Allow {
		t.Error("a private address is allowed")
	}
}

// An error names the word, and who said it.
func TestPoliciesErrors(t *testing.T) {
	for want, n := range map[string]jobs.Network{
		`network of task: allow: "http://x.example": `:                      {Allow: []string{"http://x.example"}},
		`network of task: deny: "a b": `:                                    {Mode: "allow", Deny: []string{"a b"}},
		`network of task: mode: "bridge": `:                                 {Mode: "bridge"},
		`network of phase done: opaque: "@nothing": `:                       {Phases: jobs.NetworkPhases{Done: jobs.NetworkPhase{Mode: "allow", Opaque: []string{"@nothing"}}}},
		`network of project P: allow: "10.0.0.0/8": a network needs a port`: {Bounds: []jobs.NetworkBound{{Origin: "project P", Mode: "allow", Allow: []string{"10.0.0.0/8"}}}},
	} {
		_, _, err := Policies(n)
		var word *policy.WordError
		if !errors.As(err, &word) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", n, err, want)
		}
	}
}
