// Berth gives every agent task a contained place on a cluster.
package main

import (
	"os"

	"berth/backends/daytona"
	"berth/internal/cli"
	"berth/internal/node"
)

func main() {
	if node.Is(os.Args[1:]) {
		os.Exit(node.Main(os.Args[1:]))
	}
	if len(os.Args) > 1 && os.Args[1] == daytona.Verb {
		os.Exit(daytona.Main(os.Args[2:]))
	}
	os.Exit(cli.Main(os.Args[1:]))
}
