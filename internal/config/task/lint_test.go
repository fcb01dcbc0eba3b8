package task

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing": {headTOML + "+++\n", nil},
		"an agent alone": {"+++\nname = \"x\"\n[agent]\nuse = \"claude\"\n+++\n", []string{
			"warning 3 no done", "warning 4 agent claude has no prompt", "warning 4 nothing ends agent claude"}},
		"all that it needs": {"+++\nname = \"x\"\ndone = [\"true\"]\n[agent]\nuse = \"claude\"\n[caps]\nmax_wall = \"1h\"\n+++\nDo it.\n", nil},
		"what scope names": {headTOML + "done = [\"true\"]\n[workspace]\nscope = [\"src\",\n\".github/**\", \"**/CLAUDE.md\", \".*\"]\n+++\n", []string{
			"warning 7 scope lets changes of .github through", "warning 7 scope lets changes of CLAUDE.md through"}},
		"what another scope names": {headTOML + "done = [\"true\"]\n[workspace]\n[[workspaces]]\nname = \"lib\"\nrepo = \"lib\"\nscope = [\"**/CLAUDE.md\"]\n+++\n", []string{
			"warning 9 scope lets changes of CLAUDE.md through"}},
		"checks over the task's own": {headTOML + "done = [\"true\"]\ndone_over = \"task\"\n+++\n", []string{"warning 5 done_over"}},
		"secrets": {"+++\nname = \"x\"\ndone = [\"true\"]\n[agent]\nuse = \"claude\"\n[resources]\ntime = \"1h\"\n[terminal]\nenv = [\"API_KEY\", \"TOKEN=abcdefgh\"]\n+++\nDo.\n", []string{
			"warning 9 the line holds what looks like a secret, a value of TOKEN", "warning 9 env hands API_KEY to the agent"}},
		"errors beside": {"---\nname: x\nagent:\n  use: claude\nmemmory: 1\n---\nDo.\n", []string{
			"warning 3 no done", "error 5 unknown key \"memmory\": did you mean \"memory\" in resources?"}},
		"caps with a mistake": {"+++\nname = \"x\"\ndone = [\"true\"]\n[agent]\nuse = \"claude\"\n[caps]\nmax_wal = \"1h\"\n+++\nDo.\n", []string{
			"error 7 unknown key \"max_wal\" in [caps]"}},
		"no front matter": {"# x\n", []string{"error 1 no front matter"}},
		"no TOML":         {headTOML + "x =\n+++\n", []string{"error 4 not valid TOML"}},
	} {
		var got []string
		l := Lint("fix.md", []byte(c.text))
		for _, f := range l.Found {
			got = append(got, fmt.Sprintf("%s %d %s", map[bool]string{true: "warning", false: "error"}[f.Warning], f.Line, f.Message))
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q", name, got)
		}
		if _, err := Parse("fix.md", []byte(c.text)); (err != nil) != (l.Errors() > 0) {
			t.Errorf("%s: %d errors, and Parse says %v", name, l.Errors(), err)
		}
	}
}

// Of a file with many mistakes each one is found.
func TestLintMany(t *testing.T) {
	l := Lint("fix.md", []byte(headTOML+"[slurm]\nextra = ["+strings.Repeat("\n\"x\",", 13)+"]\n+++\n"))
	if l.Errors() != 13 {
		t.Errorf("%d errors", l.Errors())
	}
}

// What is found by other means gets the line of the key that it speaks of.
func TestLintAdd(t *testing.T) {
	l := Lint("fix.md", []byte("+++\nname = \"x\"\n[agent]\nuse = \"mine\"\n[caps]\nmax_turns = 3\n+++\n"))
	for text, line := range map[string]int{"max_turns cannot be measured": 6, "there is no agent mine": 3, `agent "mine" does not exist`: 4, "all is lost": 1, "no max_turn": 1} {
		l.Found = nil
		if l.Add(false, text, ""); l.Found[0].Line != line {
			t.Errorf("%s: line %d", text, l.Found[0].Line)
		}
	}
}
