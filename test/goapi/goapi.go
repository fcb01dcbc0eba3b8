// Package goapi builds and checks examples/goapi, a module of its own that uses berth's
// Go API as others would.
package goapi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Build builds the example into dir, as `go build` does it: it is its own program for the
// nodes. The checkout is at top.
func Build(t testing.TB, top, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "goapi")
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = filepath.Join(top, "examples", "goapi")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // it is started in containers, too
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\nafter a change of berth's go.mod: cd examples/goapi && go mod tidy", err, out)
	}
	return program
}

var row = regexp.MustCompile(`(?m)^(\d+) +0 +\d+\.\d +(\d+)$`)

// Check looks at what the example has printed: a task's result, and 30 commands of which
// each adds its number to the session's sum.
func Check(t testing.TB, out string) {
	t.Helper()
	if !strings.HasPrefix(out, "the sum is 42\ntask completed, exit code 0\n") {
		t.Errorf("the task's result is not there:\n%s", out)
	}
	rows := row.FindAllStringSubmatch(out, -1)
	if len(rows) != 30 {
		t.Fatalf("%d rows, not 30:\n%s", len(rows), out)
	}
	for i, r := range rows {
		if n := i + 1; r[1] != fmt.Sprint(n) || r[2] != fmt.Sprint(n*(n+1)/2) {
			t.Errorf("command %d: %q", n, r[0])
		}
	}
}

// Run runs the example here, with a state directory of its own, and checks what it prints.
func Run(t testing.TB, program string, flags ...string) {
	t.Helper()
	home := filepath.Join(t.TempDir(), "state")
	cmd := exec.Command(program, flags...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "BERTH_HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, "config"))
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, said.String())
	}
	Check(t, string(out))
	if left, err := filepath.Glob(filepath.Join(home, "envs", "goapi*")); err != nil || len(left) > 0 {
		t.Errorf("the environment is left: %v %v", left, err)
	}
}
