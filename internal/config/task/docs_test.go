package task

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/jobs"
)

// TestDocs: every example of the user's page is accepted, and what stands there
// in both languages says the same.
func TestDocs(t *testing.T) {
	t.Setenv("HOME", "/home/ada")
	page, err := os.ReadFile("../../../docs/task-file.md")
	if err != nil {
		t.Fatal(err)
	}
	var last jobs.Task
	examples := 0
	for i, block := range strings.Split(string(page), "```") {
		lang, text, _ := strings.Cut(block, "\n")
		if i%2 == 0 || lang == "" {
			continue
		}
		examples++
		switch lang {
		case "toml":
			if top, _, _ := strings.Cut(text, "\n["); !strings.Contains(top, "name =") {
				text = "name = \"x\"\n" + text
			}
			if !strings.Contains(text, "[agent]") {
				text = "agent.command = \"true\"\n" + text
			}
			text = "+++\n" + text + "+++\n"
		case "yaml":
			if !strings.Contains(text, "agent:") {
				text = "agent: {command: \"true\"}\n" + text
			}
			text = "---\nname: x\n" + text + "---\n"
		}
		task := parse(t, "/t/fix.md", text)
		if lang == "yaml" || strings.HasPrefix(text, "---\n") {
			if diff := cmp.Diff(last, task); diff != "" {
				t.Errorf("%s\n%s", diff, text)
			}
		}
		last = task
	}
	if examples < 14 {
		t.Errorf("only %d examples found", examples)
	}
}
