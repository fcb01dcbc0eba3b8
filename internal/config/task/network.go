package task

import (
	"strings"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/internal/network/policy"
	"berth/internal/network/policy/suffix"
	"berth/jobs"
)

// network reads the table [network] and those of its phases.
func network(t *strict.Reader, p *jobs.Place) {
	t.Refuse("is the user's to say, not a task's: it stands in your own configuration", "via")
	t.Refuse("is a flag and no key: berth run --learn", "learn")
	t.Refuse("stands in a phase: done, verify or build", "phases")
	rules(t, "network", p)
	for _, name := range jobs.NetworkPhaseNames {
		rules(t.Table(name), "network."+name, p)
	}
}

func rules(t *strict.Reader, table string, p *jobs.Place) {
	keys.Take(t, table, p)
	wildcards(t)
	if deny := t.Take("deny"); deny.Given() && (t.Take("mode").Source() == jobs.NetworkOpen || t.Take("mode").Source() == "host") {
		deny.Failf(`leave one of them out; with mode = "allow" it is held`, `is given beside mode = "open", in which nothing is looked at`)
	}
}

// Bound reads what others than the user say of a network, without its origin.
func Bound(t *strict.Reader) jobs.NetworkBound {
	var p jobs.Place
	for _, key := range []string{"mode", "allow", "deny", "opaque"} {
		keys.Find("network."+key).Take(t.Take(key), &p)
	}
	wildcards(t)
	n := p.Network.Said()
	return jobs.NetworkBound{Mode: n.Mode, Allow: n.Allow, Deny: n.Deny, Opaque: n.Opaque}
}

// wildcards complains about rules of a network's lists that are below a public suffix.
// The table of these is too large for the node's program, which reads keys, too.
func wildcards(t *strict.Reader) {
	for _, key := range []string{"allow", "deny", "opaque"} {
		if v := t.Take(key); v.Is(strict.List) {
			for _, item := range v.Items("names") {
				Wildcard(item)
			}
		}
	}
}

// Wildcard complains about such a rule. What is no rule is complained about elsewhere.
func Wildcard(v strict.Value) bool {
	if !v.Is(strict.String) || !strings.Contains(v.Source(), "*") {
		return true
	}
	found, err := policy.ParseDeny(v.Source())
	if err != nil {
		return true
	}
	err = suffix.Check(found)
	if e, ok := err.(*policy.WordError); ok { //nolint:errorlint // Check returns no other
		v.Failf("", "is no rule of a network, %q: %s", v.Source(), e.Why)
	}
	return err == nil
}
