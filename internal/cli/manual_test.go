package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// What a release has beside the programs can be made of the commands: a man page for each,
// and completions.
func TestManual(t *testing.T) {
	root, _ := testRoot()
	root.DisableAutoGenTag = true
	everyCommand(root, func(c *cobra.Command) {
		var page bytes.Buffer
		if err := doc.GenMan(c, &doc.GenManHeader{Section: "1"}, &page); err != nil || !strings.Contains(page.String(), c.Short) {
			t.Errorf("%s: %v", c.CommandPath(), err)
		}
	})
	for shell, write := range map[string]func(*bytes.Buffer) error{
		"bash": func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"zsh":  func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
	} {
		var script bytes.Buffer
		if err := write(&script); err != nil || !strings.Contains(script.String(), cobra.ShellCompRequestCmd) {
			t.Errorf("%s: %v", shell, err)
		}
	}
}
