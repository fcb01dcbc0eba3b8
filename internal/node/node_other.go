//go:build !linux

package node

import (
	"fmt"
	"os"
)

// Verbs is empty: compute nodes run Linux, and elsewhere berth is a client.
var Verbs []string

// Is tells whether a command line is one of ours, which it never is here.
func Is([]string) bool { return false }

// Main says that this is the wrong system.
func Main([]string) int {
	_, _ = fmt.Fprintln(os.Stderr, "berth-node runs on Linux only")
	return 2
}
