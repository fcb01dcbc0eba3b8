// Command berth-backend-modal makes berth's environments in Modal's sandboxes. It
// is started by berth; see docs/modal.md.
package main

import (
	"os"

	"berth/backends/modal"
)

func main() { os.Exit(modal.Main()) }
