//go:build conformance

package mcp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// berth is the program, and programs the directory of those that scripts/test.d/mcp has installed.
var berth, programs string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		programs = os.Getenv("MCP_PROGRAMS")
		if programs == "" {
			fmt.Fprintln(os.Stderr, "MCP_PROGRAMS is not set: run scripts/test.d/mcp")
			return 1
		}
		dir, err := os.MkdirTemp("", "berth-mcp-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		berth = filepath.Join(dir, "berth")
		build := exec.Command("go", "build", "-o", berth, "./cmd/berth")
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// environ is that of programs with a state directory and a configuration of the test's own.
// An environment with the name is removed at the end.
func environ(t *testing.T, name string) []string {
	t.Helper()
	home := filepath.Join(t.TempDir(), "state")
	env := append(os.Environ(), "BERTH_HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(filepath.Dir(home), "config"),
		"PATH="+filepath.Join(programs, "node_modules", ".bin")+":"+os.Getenv("PATH"))
	t.Cleanup(func() {
		rm := exec.Command(berth, "env", "rm", "--force", name)
		rm.Env = env
		if out, err := rm.CombinedOutput(); err != nil && rm.ProcessState.ExitCode() != 3 {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return env
}
