//go:build !linux

package node

import (
	"fmt"
	"os"

	"berth/internal/link/mux"
)

// Verbs are the words that [Main] understands. Compute nodes run Linux, and
// elsewhere berth is a client, which holds connections to them.
var Verbs = []string{"hold"}

// Main runs one verb and returns the exit code of the process.
func Main(args []string) int {
	if !Is(args) {
		_, _ = fmt.Fprintln(os.Stderr, "berth-node runs on Linux only")
		return 2
	}
	return mux.HoldMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
}
