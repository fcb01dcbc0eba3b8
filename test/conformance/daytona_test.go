//go:build conformance

package conformance

import (
	"fmt"
	"os"
	"testing"

	"berth/backends/daytona"
	"berth/test/fakes/daytonatest"
)

// withDaytona runs the tests with a stand-in for Daytona, of which all programs
// that they start hear by their environment.
func withDaytona(m *testing.M) int {
	dir, err := os.MkdirTemp("", "daytona-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	standIn = dir
	srv := daytonatest.New(dir, daytonatest.Options{Creates: 300, Requests: 10000})
	defer srv.Close()
	for name, value := range map[string]string{"DAYTONA_API_URL": srv.URL, "DAYTONA_API_KEY": daytonatest.Key} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	for _, b := range srv.Boxes() {
		fmt.Fprintf(os.Stderr, "the sandbox %s, %s, was left\n", b.ID, b.Name)
		code = max(code, 1)
	}
	return code
}

// beDaytona is the program of the backend, which the test binary is, too.
func beDaytona(args []string) (code int, is bool) {
	if len(args) == 0 || args[0] != daytona.Verb {
		return 0, false
	}
	return daytona.Main(args[1:]), true
}
