package walls

import (
	"os"
	"strings"
	"testing"
)

// The recipes of packages take the version, and where they fetch it the checksum, from
// scripts/package, and the release's address stands in each once.
func TestRecipes(t *testing.T) {
	for file, fetches := range map[string]bool{"spack/package.py": true, "easybuild/berth.eb": true, "lmod/berth.lua": false} {
		b, err := os.ReadFile("../../packaging/" + file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, part := range []string{"@VERSION@", "@ARCH@"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %s", file, part)
			}
		}
		if !fetches {
			continue
		}
		if strings.Count(text, "@SHA256@") != 1 || strings.Count(text, "\nRELEASE = ") != 1 || strings.Count(text, "://") != 2 {
			t.Errorf("%s: the checksum and the address of the release do not stand in it once each", file)
		}
	}
}
