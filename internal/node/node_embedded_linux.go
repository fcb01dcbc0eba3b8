//go:build embednode

package node

import (
	"os"

	"berth/apptainer"
	"berth/overlay"
)

// Verbs are the words that [Main] understands. An overlay's files are read and
// written as root of a user namespace, and doctor's trials bind this program into
// containers and mount layers by it; all else is started as the berth-node that
// is embedded.
var Verbs = []string{"overlay-mount", overlay.VerbFiles, "try"}

// Main runs one of [Verbs] and returns the exit code of the process.
func Main(args []string) int {
	switch args[0] {
	case "overlay-mount":
		return overlay.MountMain(args[1:], os.Stderr)
	case overlay.VerbFiles:
		return overlay.FilesMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	default:
		return apptainer.TryMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
}
