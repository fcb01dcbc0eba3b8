package node

import (
	"fmt"
	"os"
	"slices"

	"berth/apptainer"
	"berth/internal/guest"
	"berth/internal/queue"
	"berth/internal/runner"
	"berth/overlay"
)

// Verbs are the words that [Main] understands.
var Verbs = []string{"runner", "guest", "queue-wait", "overlay-mount", "try"}

// Is tells whether a command line (without the program) is one of ours.
func Is(args []string) bool {
	return len(args) > 0 && slices.Contains(Verbs, args[0])
}

// Main runs one verb and returns the exit code of the process.
func Main(args []string) int {
	if !Is(args) {
		_, _ = fmt.Fprintln(os.Stderr, "usage: berth-node runner|guest|queue-wait ...\nThis program is started by berth on compute nodes and inside containers.")
		return 2
	}
	switch args[0] {
	case "runner":
		return runner.Main(args[1:], os.Stderr)
	case "guest":
		return guest.Main(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case "overlay-mount":
		return overlay.MountMain(args[1:], os.Stderr)
	case "try":
		return apptainer.TryMain(args[1:], os.Stdout, os.Stderr)
	default:
		return queue.WaitMain(args[1:])
	}
}
