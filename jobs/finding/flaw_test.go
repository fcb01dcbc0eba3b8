package finding

import "testing"

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

func TestFlaws(t *testing.T) {
	table := []Flaw{{ID: "a", What: "bad", Date: "2023-04-25", Fixed: []string{"1.1.8"}, Setuid: true}, {ID: "b", What: "worse", Fixed: []string{"1.4.4"}}}
	for _, c := range []struct {
		version string
		setuid  bool
		want    []string
	}{
		{"1.1.7", true, []string{"1.1.7 is older than the fix of a (2023-04-25): bad", "1.1.7 is older than the fix of b: worse"}},
		{"1.1.7", false, []string{"1.1.7 is older than the fix of b: worse"}},
		{"1.4.5", true, nil},
	} {
		got := Flaws(table, "x", c.version, c.setuid)
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v", c.version, got)
			continue
		}
		for i, f := range got {
			if f.Status != Warn || f.Subject != "x" || f.Why != c.want[i] || f.Do == "" {
				t.Errorf("%s: %+v, want %q", c.version, f, c.want[i])
			}
		}
	}
}

func TestWith(t *testing.T) {
	f := With(One(OK, "fine", "")[0], "a", "1", "b", "")
	if f.Status != OK || f.Why != "fine" || len(f.Data) != 1 || f.Data["a"] != "1" {
		t.Errorf("%+v", f)
	}
}
