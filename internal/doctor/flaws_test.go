package doctor

import (
	"strings"
	"testing"
)

func TestAffected(t *testing.T) {
	three := []string{"23.11.11", "24.05.8", "24.11.5"}
	for _, c := range []struct {
		version, since string
		fixed          []string
		want           bool
	}{
		{"24.11.5", "", three, false}, {"24.11.4", "", three, true}, {"24.11.5-1.el9", "", three, false}, {"24.05.7", "", three, true}, {"24.05.10", "", three, false},
		{"25.05.0", "", three, false}, {"23.02.9", "", three, true}, {"22.05.8", "", three, true}, {"24.11", "", three, true},
		{"23.11.10", "24.05", []string{"24.05.4"}, false}, {"24.05.3", "24.05", []string{"24.05.4"}, true}, {"24.11.0", "24.05", []string{"24.05.4"}, false},
		{"1.1.5+ds1", "", []string{"1.1.12"}, true}, {"1.4.5", "", []string{"1.4.4"}, false}, {"1.4.3", "", []string{"1.4.4"}, true}, {"1.10.0", "", []string{"1.4.4"}, false},
		{"", "", three, false}, {"unknown", "", three, false}, {"24", "", three, false},
	} {
		if got := affected(c.version, c.since, c.fixed); got != c.want {
			t.Errorf("%q, since %q, fixed in %v: %v", c.version, c.since, c.fixed, got)
		}
	}
}

// TestFlaws: the table is well-formed, and what is setuid's is only its.
func TestFlaws(t *testing.T) {
	for _, f := range flaws {
		if f.program == "" || f.id == "" || f.what == "" || len(f.fixed) == 0 {
			t.Errorf("%+v", f)
		}
		last := [3]int{}
		for _, v := range f.fixed {
			n, ok := numbers(v)
			if !ok || !less(last, n) {
				t.Errorf("%s: %v is not in order", f.id, f.fixed)
			}
			last = n
		}
	}
	ids := func(version string, setuid bool) string {
		var s []string
		for _, f := range knownFlaws("apptainer", version, setuid) {
			s = append(s, f.id)
		}
		return strings.Join(s, "; ")
	}
	if got := ids("1.1.7", true); !strings.Contains(got, "CVE-2023-30549") {
		t.Error(got)
	}
	if got := ids("1.1.7", false); strings.Contains(got, "CVE-2023-30549") || !strings.Contains(got, "ext3 layers") {
		t.Error(got)
	}
	if got := ids("1.4.5", true); got != "" {
		t.Error(got)
	}
}
