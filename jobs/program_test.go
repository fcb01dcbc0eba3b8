package jobs

import (
	"strings"
	"testing"
)

func TestIsProgram(t *testing.T) {
	for word, want := range map[string]bool{"modal": true, "my-cloud": true, "a1": true, "docker": false, "auto": false, "podman": false, "slurm": false, "external": false,
		"a/b": false, "..": false, "": false, "Up": false, "x-": false, "-x": false, "1a": false, "a b": false, "a_b": false, "é": false, strings.Repeat("a", 31): true, strings.Repeat("a", 32): false} {
		if IsProgram(word) != want {
			t.Errorf("IsProgram(%q) = %v", word, !want)
		}
	}
}
