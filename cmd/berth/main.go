// Berth gives every agent task a contained place on a cluster.
package main

import (
	"os"

	"berth/engine"
	"berth/internal/cli"
)

func main() {
	engine.Main()
	os.Exit(cli.Main(os.Args[1:]))
}
