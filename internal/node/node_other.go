//go:build !linux

package node

import (
	"fmt"
	"os"
	"slices"

	"berth/internal/link/far"
)

// Verbs are the words that [Main] understands. Compute nodes run Linux, and
// elsewhere berth is a client, which holds connections to them.
var Verbs = []string{"hold"}

// Is tells whether a command line (without the program) is one of ours.
func Is(args []string) bool {
	return len(args) > 0 && slices.Contains(Verbs, args[0])
}

// Main runs one verb and returns the exit code of the process.
func Main(args []string) int {
	if !Is(args) {
		_, _ = fmt.Fprintln(os.Stderr, "berth-node runs on Linux only")
		return 2
	}
	return far.HoldMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
}
