package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// scrontab is Slurm's, which a site may have disabled.
func scrontab(args []string) int {
	if _, ok := theCluster().order("no-scrontab"); ok {
		fmt.Fprintln(os.Stderr, "scrontab: fatal: scrontab is disabled on this cluster")
		return 1
	}
	return tab("scrontab", args)
}

// crontab is cron's.
func crontab(args []string) int {
	if _, ok := theCluster().order("no-crontab"); ok {
		fmt.Fprintln(os.Stderr, "You (ada) are not allowed to use this program (crontab)")
		return 1
	}
	return tab("crontab", args)
}

// tab keeps one in a file of the program's name.
func tab(program string, args []string) int {
	file := filepath.Join(theCluster().dir, program)
	switch text, err := os.ReadFile(file); {
	case len(args) != 1:
		return unexpected(program, args)
	case args[0] == "-l" && err != nil:
		fmt.Fprintln(os.Stderr, "no crontab for ada")
		return 1
	case args[0] == "-l":
		_, _ = os.Stdout.Write(text)
	case args[0] == "-r":
		_ = os.Remove(file)
	default:
		text, err := os.ReadFile(args[0])
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return unexpected(program, args)
		}
		_ = os.WriteFile(file, text, 0o600)
	}
	return 0
}
