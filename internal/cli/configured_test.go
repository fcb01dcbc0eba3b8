package cli

import (
	"io"
	"strings"
	"testing"

	"berth/internal/config"
)

// TestConfiguredFlags: the flag that stands for a key is one of the verbs for
// which the key counts.
func TestConfiguredFlags(t *testing.T) {
	root := newRoot(newApp(strings.NewReader(""), io.Discard, io.Discard), nil)
	has := func(verb, flag string) bool {
		c, _, err := root.Find([]string{verb})
		return err == nil && c.Flags().Lookup(flag) != nil
	}
	// Of a job the layer is its own and thrown away as it is: its task file may ask for the look.
	envsOnly := map[string]bool{"timeout": true, "forward": true, "per-task-workspace": true, "discard": true, "discard-after": true}
	n := 0
	for _, k := range config.Keys() {
		if k.Flag == "" {
			continue
		}
		n++
		if !k.NotEnvs && !has("exec", k.Flag) {
			t.Errorf("%s: berth exec has no --%s", k.Name, k.Flag)
		}
		if k.Jobs && !envsOnly[k.Flag] && !has("submit", k.Flag) {
			t.Errorf("%s: berth submit has no --%s", k.Name, k.Flag)
		}
	}
	if n < 20 {
		t.Errorf("only %d keys have flags", n)
	}
}
