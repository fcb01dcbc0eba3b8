// Package suffix checks rules for what only a large table knows: which names are
// public suffixes, names below which belong to many owners. It is linked into the
// client alone.
package suffix

import (
	"slices"

	"golang.org/x/net/publicsuffix"

	"berth/internal/network/policy"
)

// inner are names of networks without the internet, which no registry hands out.
var inner = []string{"internal", "local", "test", "corp", "home"}

// Check refuses wildcards below a public suffix: *.com, *.co.uk, *.github.io. Bundles
// are checked, too. The error is a *[policy.WordError].
func Check(rules []policy.Rule) error {
	for _, r := range rules {
		name, ok := r.Wildcard()
		if !ok || slices.Contains(inner, name) {
			continue
		}
		if s, _ := publicsuffix.PublicSuffix(name); s == name {
			return &policy.WordError{Word: r.String(),
				Why: name + " is a public suffix, names below it belong to many owners: write *.NAME." + name}
		}
	}
	return nil
}
