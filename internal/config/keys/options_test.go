package keys

import (
	"slices"
	"testing"
)

func TestExpand(t *testing.T) {
	for name, want := range map[string]string{
		"output": "output", "outp": "", "o": "", "mem": "mem", "mem-per-cpu": "mem-per-cpu", "mem-per": "",
		"cluster": "", "container": "container", "container-image": "container-image", "no": "", "zzz": "zzz",
	} {
		if got := Expand(name); got != want {
			t.Errorf("Expand(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestOptions: the lists do not contradict each other, and every short option
// stands for one of them.
func TestOptions(t *testing.T) {
	all := Options()
	if n := len(slices.Compact(slices.Clone(all))); n != len(all) {
		t.Errorf("an option stands in two lists: %v", all)
	}
	for s, long := range short {
		if !slices.Contains(all, long) {
			t.Errorf("%s stands for %q, which is in no list", s, long)
		}
	}
}
