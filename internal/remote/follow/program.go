package follow

import (
	"os"

	"berth/internal/node"
	"berth/jobs"
)

// Program is the main of berth-node with the words behind its name: the verbs of
// internal/node, and those that need the engine, which berth itself has under
// other names. It returns the exit code of the process.
func Program(args []string) int {
	switch {
	case len(args) > 0 && args[0] == jobs.VerbFollow:
		return Main(args[1:], os.Stderr)
	case IsWatch(args):
		return WatchMain(args[1:], os.Stderr)
	}
	return node.Main(args)
}
