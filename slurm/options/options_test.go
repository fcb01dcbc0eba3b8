package options

import (
	"slices"
	"testing"
)

func TestFull(t *testing.T) {
	for name, want := range map[string]string{
		"output": "output", "outp": "", "o": "", "mem": "mem", "mem-per-cpu": "mem-per-cpu", "mem-per": "",
		"cluster": "", "container": "container", "container-image": "container-image", "no": "", "zzz": "zzz",
	} {
		if got := Full(name); got != want {
			t.Errorf("Full(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestNames: the lists do not contradict each other, and every short option
// stands for one of them.
func TestNames(t *testing.T) {
	all := Names()
	if n := len(slices.Compact(slices.Clone(all))); n != len(all) {
		t.Errorf("an option stands in two lists: %v", all)
	}
	for s, long := range short {
		if !slices.Contains(all, long) {
			t.Errorf("%s stands for %q, which is in no list", s, long)
		}
	}
}

// TestOwn: what abbreviates an option of berth's is berth's, too.
func TestOwn(t *testing.T) {
	for name, want := range map[string]bool{
		"output": true, "outp": true, "uid": true, "container": true, "cont": true, "container-id": false, "wait": true, "wait-all-nodes": false,
		"mem": false, "exclusive": false, "dependency": false,
	} {
		if got := Own(name); got != want {
			t.Errorf("Own(%q) = %v", name, got)
		}
	}
}

func TestSplit(t *testing.T) {
	for word, want := range map[string][2]string{"--mem=1=2": {"mem", "1=2"}, "--exclusive": {"exclusive", ""}, "--begin=": {"begin", ""}} {
		if name, value, ok := Split(word); !ok || name != want[0] || value != want[1] {
			t.Errorf("Split(%q) = %q, %q, %v", word, name, value, ok)
		}
	}
	for _, word := range []string{"", "-p", "--", "--=x", "-- mem", "--Mem", "--nice --array=1", "mem", "---mem", "--9"} {
		if name, _, ok := Split(word); ok {
			t.Errorf("Split(%q) = %q", word, name)
		}
	}
}
