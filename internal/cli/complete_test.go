package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// Every row of the tables names what exists, so that a renamed command does not lose its
// completion in silence.
func TestCompletedCommands(t *testing.T) {
	root, _ := testRoot()
	for _, row := range completedArgs {
		for _, path := range row.commands {
			if c, rest, err := root.Find(strings.Fields(path)); err != nil || len(rest) > 0 || c == root {
				t.Errorf("there is no command %q", path)
			}
		}
	}
	flags := map[string]bool{}
	everyCommand(root, func(c *cobra.Command) {
		for name := range completedFlags {
			flags[name] = flags[name] || c.Flags().Lookup(name) != nil
		}
	})
	for name := range completedFlags {
		if !flags[name] {
			t.Errorf("no command has the flag --%s", name)
		}
	}
}

// Nothing that a task or a site has named reaches the shell as more than a word and a text.
func TestCompletions(t *testing.T) {
	all := []candidate{
		{"0a1b2c3d", "failed fix\x1b[31m \x9b2J`id` $(reboot)\ttab\nline; \u202e\u2028 'x' é"},
		{"0a$(id)", ""}, {"0a\nb", ""}, {"0a b", ""}, {"0a`b", ""}, {"0a\x1b", ""}, {"0a\u202eb", ""}, {"0a\xff", ""},
		{"-rf", ""}, {"", ""}, {"ffff", "no such beginning"}, {"0abc", "given"},
		{"0along", strings.Repeat("x", 1000)},
	}
	got := completions(all, []string{"0abc"}, "0a")
	want := []cobra.Completion{"0a1b2c3d\tfailed fix 31m 2J id reboot tab line x é", "0along\t" + strings.Repeat("x", describedMost)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := completions([]candidate{{"-rf", ""}}, nil, ""); got != nil {
		t.Error(got)
	}
}

// A search that hangs is given up.
func TestCompletionInTime(t *testing.T) {
	a, _, _ := onTerminal(false)
	c := &cobra.Command{}
	c.SetContext(t.Context())
	release := make(chan struct{})
	defer close(release)
	list := a.completed(func(context.Context, *app, *cobra.Command, string) []candidate { <-release; return nil }, false)
	begun := time.Now()
	got, directive := list(c, nil, "")
	if took := time.Since(begun); got != nil || directive != cobra.ShellCompDirectiveDefault || took < completeFor || took > 10*time.Second {
		t.Error(got, directive, took)
	}
}
