//go:build conformance

package conformance

import (
	"fmt"
	"os"
	"testing"

	"berth/test/fakes/modaltest"
)

const backendModal = "modal"

// withModal runs the tests with a stand-in for Modal's servers, of which all
// programs that they start hear by their environment.
func withModal(m *testing.M) int {
	dir, err := os.MkdirTemp("", "modal-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	standIn = dir
	srv, err := modaltest.Start(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer srv.Close()
	srv.Setenv(func(name, value string) { _ = os.Setenv(name, value) })
	code := m.Run()
	if left := srv.Running(); len(left) > 0 && code == 0 {
		for _, b := range left {
			fmt.Fprintf(os.Stderr, "the sandbox %s of %s was left\n", b.ID, b.Name)
		}
		code = 1
	}
	return code
}
