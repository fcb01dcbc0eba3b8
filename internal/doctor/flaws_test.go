package doctor

import (
	"testing"

	"berth/jobs/finding"
)

// TestFlaws: the table is well-formed.
func TestFlaws(t *testing.T) {
	for _, f := range runcFlaws {
		if f.ID == "" || f.What == "" || len(f.Fixed) == 0 {
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
