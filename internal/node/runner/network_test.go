//go:build linux

package runner

import (
	"slices"
	"testing"
	"time"

	"berth/jobs"
)

// A site's proxy is for tasks whose network is open: another one has doors of its own,
// whose variables it would take the place of.
func TestSiteProxy(t *testing.T) {
	for mode, want := range map[string]bool{"": true, jobs.NetworkAllow: false, jobs.NetworkNone: false} {
		r := &attempt{}
		r.spec.Profile.Proxy = jobs.Proxy{HTTPS: "http://site:3128"}
		r.spec.Network.Mode = mode
		if got := slices.Contains(r.taskEnv(nil, time.Time{}), "https_proxy=http://site:3128"); got != want {
			t.Errorf("network %q: %v, want %v", mode, got, want)
		}
	}
}
