package examine

import (
	"strings"
	"testing"

	"berth/jobs/finding"
	"berth/jobs/jobstest"
)

// TestFlaws: the table is well-formed.
func TestFlaws(t *testing.T) { jobstest.Flaws(t, flaws, true) }

// TestSetuidFlaws: what is setuid's is only its.
func TestSetuidFlaws(t *testing.T) {
	for _, c := range []struct {
		version    string
		setuid     bool
		has, hasnt string
	}{
		{"1.1.7", true, "CVE-2023-30549", "runc"}, {"1.1.7", false, "ext3 layers", "CVE-2023-30549"}, {"1.4.5", true, "", "older"},
	} {
		var all string
		for _, f := range finding.Flaws(flaws, "", c.version, c.setuid) {
			all += f.Why + "; "
		}
		if !strings.Contains(all, c.has) || strings.Contains(all, c.hasnt) {
			t.Errorf("%s, setuid %v: %s", c.version, c.setuid, all)
		}
	}
}
