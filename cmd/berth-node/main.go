// Berth-node is the part of berth that runs on compute nodes and inside
// environments: the runner and the guest. It is small and starts fast; berth
// carries it embedded and puts it on the nodes by its hash.
package main

import (
	"os"

	"berth/engine"
	"berth/internal/node/guest"
)

func main() {
	if guest.IsScript(os.Args) {
		os.Exit(guest.ScriptMain(os.Args[1:], os.Stderr))
	}
	os.Exit(engine.NodeMain(os.Args[1:]))
}
