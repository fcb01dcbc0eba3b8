//go:build manual

// Man writes a man page for each command of berth into a directory. The program that is
// shipped has no part of it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
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

// write makes the pages, dated by the seconds since 1970 of the commit: two runs write the
// same bytes.
func write(dir, version, seconds string) error {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("the date: %w", err)
	}
	date := time.Unix(n, 0).UTC()
	root := cli.Manual()
	root.DisableAutoGenTag = true
	return page(root, dir, &doc.GenManHeader{Section: "1", Date: &date, Source: "berth " + version, Manual: "berth"})
}

func page(c *cobra.Command, dir string, header *doc.GenManHeader) error {
	for _, sub := range c.Commands() {
		if sub.Hidden || sub.Name() == "help" {
			continue
		}
		if err := page(sub, dir, header); err != nil {
			return err
		}
	}
	h := *header
	h.Title = strings.ToUpper(strings.ReplaceAll(c.CommandPath(), " ", "-"))
	f, err := os.Create(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
	if err != nil {
		return err
	}
	if exit := c.Annotations["exit"]; exit != "" {
		c.Long += "\n\nExit status: " + exit
	}
	c.DisableAutoGenTag = true
	if err := doc.GenMan(c, &h, f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
