//go:build !berthnode

package engine

import (
	"os"
	"path/filepath"
	"strings"

	"berth/backends/daytona"
	"berth/internal/node"
	"berth/internal/node/guest"
	"berth/internal/node/nodebin"
	"berth/jobs"
)

// Main has to be the first call of the main function of a program that uses an [Engine].
// berth starts the program itself for what runs beside it: the supervisor of a job or of
// an environment, the process inside of a container, a backend that is built in. Then
// Main does that and ends the process. Else it returns at once.
//
// What it takes are command lines that begin with one of berth's own words, such as
// "runner" or "keep"; no verb of the program may be called so. Built with -tags embednode
// the program carries berth-node for that, and these words are few.
func Main() {
	if guest.IsScript(os.Args) { // the shell of an image's build
		os.Exit(guest.ScriptMain(os.Args[1:], os.Stderr)) //nolint:forbidigo // as below
	}
	if args := os.Args[1:]; isOurs(args) {
		os.Exit(serve(args)) //nolint:forbidigo // it is the end of main in another process
	}
}

func isOurs(args []string) bool {
	return len(args) > 0 && (node.Is(args) || args[0] == daytona.Verb || args[0] == jobs.VerbWatch || args[0] == verbRelay ||
		(args[0] == jobs.VerbFollow || args[0] == jobs.VerbChild) && strings.HasPrefix(filepath.Base(os.Args[0]), nodebin.Prefix))
}

func serve(args []string) int {
	if args[0] == daytona.Verb {
		return daytona.Main(args[1:])
	}
	return NodeMain(args)
}

// builtin is the command line of a backend that is a program and is part of this one.
func builtin(name string) []string {
	if name == daytona.Name {
		return daytona.Program()
	}
	return nil
}
