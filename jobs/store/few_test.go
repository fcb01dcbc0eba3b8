package store

import (
	"slices"
	"strings"
	"testing"

	"berth/jobs"
)

// A few records are those asked for, from the end that is asked for, and no more is read.
func TestFew(t *testing.T) {
	st := open(t)
	var ids []string
	for range 6 {
		ids = append(ids, create(t, st).Spec.ID)
	}
	slices.Sort(ids)
	got := func(f Few) (found []string, more bool) {
		t.Helper()
		recs, more, err := st.Few(f)
		must(t, err)
		for _, r := range recs {
			found = append(found, r.Spec.ID)
		}
		return found, more
	}
	if found, more := got(Few{Most: 4, All: true}); !slices.Equal(found, ids[:4]) || !more {
		t.Errorf("the oldest: %q, more %v", found, more)
	}
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	if found, more := got(Few{Most: 6, All: true, Newest: true}); !slices.Equal(found, newest) || more {
		t.Errorf("the newest: %q, more %v", found, more)
	}
	one := func(id string) bool { return strings.HasPrefix(jobs.Short(id), jobs.Short(ids[3])) }
	if found, more := got(Few{Want: one, Most: 1, All: true}); !slices.Equal(found, ids[3:4]) || more {
		t.Errorf("one: %q, more %v", found, more)
	}
}
