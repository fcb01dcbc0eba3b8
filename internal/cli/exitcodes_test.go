package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExitCodesPage: each command stands in the table of docs/exit-codes.md, and each code that a
// help names is in a row; a command that has only what every verb has needs no row.
func TestExitCodesPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "exit-codes.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "\n| verb | codes |\n")
	table, _, more := strings.Cut(table, "\n\n")
	if !ok || !more {
		t.Fatal("docs/exit-codes.md has no table of verbs")
	}
	code, name := regexp.MustCompile(`\b\d+\b`), regexp.MustCompile("`([a-z -]+)`")
	every := map[string]bool{"0": true, "2": true, "5": true, "78": true, "130": true}
	codes, others := map[string]string{}, map[string]string{} // of a verb, and of the verbs of a family without a row
	for _, row := range strings.Split(table, "\n")[1:] {
		verbs, text, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for _, m := range name.FindAllStringSubmatch(verbs, -1) {
			if strings.HasPrefix(verbs, "the other verbs") {
				others[m[1]] = text
			} else {
				codes[m[1]] = text
			}
		}
	}
	root, _ := testRoot()
	said := map[string]map[string]bool{} // of the text of a help, which the verbs of a family may share, whether a row has the code
	seen := 0
	everyCommand(root, func(c *cobra.Command) {
		exit := c.Annotations[annotationExit]
		if exit == "" || c.HasSubCommands() && !doesItself(c) {
			return
		}
		path := strings.TrimPrefix(c.CommandPath(), root.Name()+" ")
		row, ok := codes[path]
		for up := path; !ok && strings.Contains(up, " "); {
			up = up[:strings.LastIndexByte(up, ' ')]
			if row, ok = others[up]; !ok {
				row, ok = codes[up]
			}
		}
		seen++
		for _, n := range code.FindAllString(exit, -1) {
			if every[n] {
				continue
			}
			if !ok {
				t.Errorf("docs/exit-codes.md has no row for %s, whose help names %s", path, n)
				return
			}
			if said[exit] == nil {
				said[exit] = map[string]bool{}
			}
			said[exit][n] = said[exit][n] || refers.MatchString(row) || slices.Contains(code.FindAllString(row, -1), n)
		}
	})
	for exit, all := range said {
		for n, ok := range all {
			if !ok {
				t.Errorf("docs/exit-codes.md: no row of a verb has %s, though their help says: %s", n, exit)
			}
		}
	}
	if seen < 60 {
		t.Errorf("%d commands are too few", seen)
	}
}

// refers is in a row whose other codes are in another one.
var refers = regexp.MustCompile("(those of|as for|as) `")
