//go:build conformance

package conformance

import (
	"os"
	"testing"

	"berth/internal/node"
)

// The test binary is its own program for the nodes, unless one is embedded. It
// is also the clients that are killed, and what looks at the machine of a
// keeper, which may be another one.
func TestMain(m *testing.M) {
	if node.Is(os.Args[1:]) {
		os.Exit(node.Main(os.Args[1:]))
	}
	switch os.Getenv(roleVar) {
	case roleClient:
		os.Exit(beClient(os.Args[1:]))
	case roleLook:
		os.Exit(look(os.Args[1:]))
	}
	os.Exit(m.Run())
}
