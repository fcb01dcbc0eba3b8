package node

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"berth/apptainer"
	"berth/internal/guest"
	"berth/internal/keeper"
	"berth/internal/queue"
	"berth/internal/runner"
	"berth/overlay"
)

// Verbs are the words that [Main] understands.
var Verbs = []string{"runner", "guest", "keep", "connect", "overlay-mount", "try", "queue-wait"}

// Is tells whether a command line (without the program) is one of ours.
func Is(args []string) bool {
	return len(args) > 0 && slices.Contains(Verbs, args[0])
}

// Main runs one verb and returns the exit code of the process.
func Main(args []string) int {
	if !Is(args) {
		_, _ = fmt.Fprintf(os.Stderr, "usage: berth-node %s ...\nThis program is started by berth on compute nodes and inside containers.\n", strings.Join(Verbs, "|"))
		return 2
	}
	switch args[0] {
	case "runner":
		return runner.Main(args[1:], os.Stderr)
	case "guest":
		return guest.Main(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case "keep":
		return keeper.Main(args[1:], openers(), os.Stdout, os.Stderr)
	case "connect":
		return keeper.ConnectMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case "overlay-mount":
		return overlay.MountMain(args[1:], os.Stderr)
	case "try":
		return apptainer.TryMain(args[1:], os.Stdout, os.Stderr)
	default:
		return queue.WaitMain(args[1:])
	}
}
