package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth/docs"
	"berth/jobs"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand calls visit with each command that a person can name.
func everyCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			everyCommand(sub, visit)
		}
	}
}

func testRoot() (root *cobra.Command, stdout *bytes.Buffer) {
	a, stdout, _ := onTerminal(false)
	root = newRoot(a, nil)
	root.InitDefaultHelpCmd()
	return root, stdout
}

func TestHelpOfEveryCommand(t *testing.T) {
	root, _ := testRoot()
	everyCommand(root, func(c *cobra.Command) {
		if c == root || c.Parent().Name() == "completion" { // those are cobra's own
			return
		}
		text := usageText(c)
		if c.Short == "" || strings.HasPrefix(c.Long, c.Short) || len(c.Short) > 72 {
			t.Errorf("%s: the line in lists is %q", c.CommandPath(), c.Short)
		}
		if !strings.Contains(text, "Examples:\n  ") || !strings.Contains(c.Example, c.CommandPath()) && !strings.Contains(c.Example, c.Parent().CommandPath()) {
			t.Errorf("%s has no example of its own: %q", c.CommandPath(), c.Example)
		}
		if !strings.Contains(text, "\nExit status:\n") {
			t.Errorf("%s does not tell its exit status", c.CommandPath())
		}
		for line := range strings.SplitSeq(c.Long+"\n"+c.Example, "\n") {
			if len(line) > 95 {
				t.Errorf("%s: too wide: %s", c.CommandPath(), line)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if value, usage := pflag.UnquoteUsage(f); !f.Hidden && (usage == "" || value != "" && value == f.Value.Type()) {
				t.Errorf("%s: the value of --%s has no name of its own: %q", c.CommandPath(), f.Name, value)
			}
		})
	})
}

// Each command is made alone for its own command line, and all of them for others.
// A wrong number of arguments is told in berth's words, with the command's own help as the hint or a better one.
func TestWrongArguments(t *testing.T) {
	root, _ := testRoot()
	refused := 0
	everyCommand(root, func(c *cobra.Command) {
		for _, n := range []int{0, 1, 2, 9} {
			err := c.ValidateArgs(slices.Repeat([]string{"word"}, n))
			if err == nil {
				continue
			}
			refused++
			if jobs.KindOf(err) != jobs.KindUsage || !strings.Contains(jobs.HintOf(err), "berth ") || !strings.Contains(err.Error(), " ") {
				t.Errorf("%s with %d arguments: %v; hint: %q", c.CommandPath(), n, err, jobs.HintOf(err))
			}
		}
	})
	if refused < 100 {
		t.Errorf("%d command lines were refused", refused)
	}
}

func TestOneCommand(t *testing.T) {
	root, _ := testRoot()
	for _, c := range root.Commands() {
		a, _, _ := onTerminal(false)
		one := newRoot(a, []string{c.Name()})
		if got := len(one.Commands()); c.Name() != "help" && c.Name() != "completion" && (got != 1 || one.Commands()[0].Name() != c.Name()) {
			t.Errorf("%d commands for berth %s", got, c.Name())
		}
		for _, words := range [][]string{{"help", c.Name()}, {"--help"}, {"no-verb"}} {
			if got := len(newRoot(a, words).Commands()); got != len(root.Commands())-1 { // help comes later
				t.Errorf("%d commands for %q, not %d", got, words, len(root.Commands())-1)
			}
		}
	}
}

// The everyday commands come first, every command has a family, and all that are not
// hidden fit on one page.
func TestHelpOfBerth(t *testing.T) {
	root, stdout := testRoot()
	root.SetArgs([]string{"--help"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	text := stdout.String()
	if n := strings.Count(text, "\n"); n > 60 {
		t.Errorf("berth --help has %d lines", n)
	}
	first := 0
	for _, c := range root.Commands() {
		if c.GroupID == "" || c.Hidden == strings.Contains(text, fmt.Sprintf("\n  %-10s  %s\n", c.Name(), c.Short)) {
			t.Errorf("berth --help does not list %s, of the family %q, or does though it is hidden", c.Name(), c.GroupID)
		}
		if i := indexOfGroup(root, c.GroupID); i < 4 {
			first++
		}
	}
	if first > 15 {
		t.Errorf("%d commands are everyday ones", first)
	}
}

// The table of pages says which commands have a page's name: docs.Page.Help believes it.
func TestPagesNamedAsCommands(t *testing.T) {
	root, _ := testRoot()
	count := 0
	for _, p := range docs.Pages() {
		named := slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == p.Name })
		if named != slices.Contains(p.Commands, p.Name) {
			t.Errorf("docs/README.md: is %s a command? %t, and its row has those of %q", p.Name, named, p.Commands)
		}
		if named {
			count++
		}
	}
	if count < 3 {
		t.Errorf("%d pages with names of commands are too few", count)
	}
}

func indexOfGroup(root *cobra.Command, id string) int {
	for i, g := range root.Groups() {
		if g.ID == id {
			return i
		}
	}
	return len(root.Groups())
}
