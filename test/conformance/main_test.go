//go:build conformance

package conformance

import (
	"os"
	"testing"

	"berth/internal/node"
)

// The test binary is its own program for the nodes, unless one is embedded.
func TestMain(m *testing.M) {
	if node.Is(os.Args[1:]) {
		os.Exit(node.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}
