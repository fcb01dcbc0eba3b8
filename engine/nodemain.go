package engine

import (
	"os"

	"berth/internal/node"
	"berth/jobs"
)

// NodeMain is the program for the nodes, cmd/berth-node, with these arguments. It
// returns the exit code of the process.
func NodeMain(args []string) int {
	switch {
	case len(args) > 0 && args[0] == jobs.VerbFollow:
		return followMain(args[1:], os.Stderr)
	case len(args) > 0 && args[0] == jobs.VerbChild:
		return childMain(args[1:], os.Stderr)
	case len(args) > 0 && args[0] == verbRelay:
		return relayMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case len(args) == 2 && args[0] == jobs.VerbWatch:
		return watchMain(args[1:], os.Stderr)
	}
	return node.Main(args)
}
