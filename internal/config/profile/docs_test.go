package profile

import (
	"os"
	"strings"
	"testing"
)

// TestDocs: every example of the user's page is accepted.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/profiles.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, block := range strings.Split(string(page), "```toml\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		if _, err := Parse("x.toml", []byte(text)); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		examples++
	}
	if examples < 4 {
		t.Errorf("only %d examples found", examples)
	}
}
