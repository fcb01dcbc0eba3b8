//go:build conformance

package conformance

import (
	"os"
	"testing"

	"berth/backends/daytona"
	"berth/internal/node"
)

// The test binary is its own program for the nodes, unless one is embedded. It
// is also the clients that are killed, and what looks at the machine of a
// keeper, which may be another one.
func TestMain(m *testing.M) {
	if node.Is(os.Args[1:]) {
		os.Exit(node.Main(os.Args[1:]))
	}
	if code, is := beDaytona(os.Args[1:]); is {
		os.Exit(code)
	}
	switch os.Getenv(roleVar) {
	case roleClient:
		os.Exit(beClient(os.Args[1:]))
	case roleLook:
		os.Exit(look(os.Args[1:]))
	}
	if backend() == backendModal {
		os.Exit(withModal(m))
	}
	if backend() == daytona.Name {
		os.Exit(withDaytona(m))
	}
	os.Exit(m.Run())
}
