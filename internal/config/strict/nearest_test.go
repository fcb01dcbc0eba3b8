package strict

import "testing"

func TestNearest(t *testing.T) {
	words := []string{"cpus", "memory", "disk", "time", "gpus", "nodes", "max_turns"}
	for word, want := range map[string]string{
		"memmory": "memory", "mem": "memory", "Memory": "memory", "gpu": "gpus", "cpsu": "cpus",
		"tiem": "time", "maxturns": "max_turns", "max-turns": "max_turns", "node": "nodes",
		"frobnicate": "", "": "", "x": "", "ti": "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"abc", "acb", 1}, {"abc", "abd", 1}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
