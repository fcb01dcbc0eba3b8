//go:build manual

// Man writes a man page for each command of berth, and the shells' completions, into a
// directory as share/ has them. It runs where berth is built, for every architecture; the
// program that is shipped has no part of the pages.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"berth/internal/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: man DIRECTORY VERSION SECONDS")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// write makes the pages, dated by the seconds since 1970 of the commit, and the scripts that
// `berth completion` prints: two runs write the same bytes.
func write(dir, version, seconds string) error {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("the date: %w", err)
	}
	date := time.Unix(n, 0).UTC()
	root := cli.Manual()
	root.DisableAutoGenTag = true
	for file, script := range map[string]func(io.Writer) error{
		"bash-completion/completions/berth":    func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh/site-functions/_berth":            root.GenZshCompletion,
		"fish/vendor_completions.d/berth.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		var text bytes.Buffer
		if err := script(&text); err != nil {
			return err
		}
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	pages := filepath.Join(dir, "man", "man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	// cobra names what is a command's help in no page. That of berth has one, as it shows pages, too.
	root.InitDefaultHelpCmd()
	root.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true})
	return page(root, pages, &doc.GenManHeader{Section: "1", Date: &date, Source: "berth " + version, Manual: "berth"})
}

func page(c *cobra.Command, dir string, header *doc.GenManHeader) error {
	for _, sub := range c.Commands() {
		if sub.Hidden {
			continue
		}
		if err := page(sub, dir, header); err != nil {
			return err
		}
	}
	h := *header
	h.Title = strings.ToUpper(strings.ReplaceAll(c.CommandPath(), " ", "-"))
	if exit := c.Annotations["exit"]; exit != "" {
		c.Long += "\n\nExit status: " + exit
	}
	c.DisableAutoGenTag = true
	var text bytes.Buffer
	if err := doc.GenMan(c, &h, &text); err != nil {
		return err
	}
	// Each option is a paragraph with a tag, whose text is no request of roff's (\&). cobra writes a line that begins
	// with a tab, and a date without a day.
	roff := option.ReplaceAll(text.Bytes(), []byte(".TP\n$1\n\\&$2\n"))
	roff = bytes.Replace(roff, []byte(h.Date.Format(`"Jan 2006"`)), []byte(h.Date.Format(`"2006-01-02"`)), 1)
	return os.WriteFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"), roff, 0o644)
}

// option is one of a page as cobra writes it: its names, and a line that says what it is for.
var option = regexp.MustCompile(`(?m)^(?:\.PP\n)?(\\fB-.*)\n\t(.*)\n`)
