package jobstest

import (
	"testing"

	"berth/jobs/finding"
)

// Flaws checks a table of flaws. setuid is that some may be of setuid programs alone.
func Flaws(t *testing.T, table []finding.Flaw, setuid bool) {
	t.Helper()
	for _, f := range table {
		if f.ID == "" || f.What == "" || len(f.Fixed) == 0 || f.Setuid && !setuid {
			t.Errorf("%+v", f)
		}
		last := [3]int{}
		for _, v := range f.Fixed {
			n, ok := finding.Numbers(v)
			if !ok || !finding.Less(last, n) {
				t.Errorf("%s: %v is not in order", f.ID, f.Fixed)
			}
			last = n
		}
	}
}
