// Package integrations runs the Python tests of integrations with a berth that it builds.
package integrations

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// old parses each file as the oldest Python that they promise does, and compiles it.
const old = `
import ast, sys
for name in sys.argv[1:]:
    with open(name, "rb") as f:
        source = f.read()
    ast.parse(source, name, feature_version=(3, 9))
    compile(source, name, "exec")
`

const (
	python = "python3"
	debian = "/usr/bin/python3"
)

func dirs(t *testing.T) (top string, dirs []string) {
	t.Helper()
	top, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := filepath.Glob(filepath.Join(top, "integrations", "*", "test_*.py"))
	if err != nil || len(tests) < 4 {
		t.Fatalf("tests are missing below integrations: %v %v", tests, err)
	}
	for _, test := range tests {
		dirs = append(dirs, filepath.Dir(test))
	}
	return top, dirs
}

// command is a Python program that writes nothing beside the modules.
func command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

func TestUnits(t *testing.T) {
	top, all := dirs(t)
	bin, home := t.TempDir(), filepath.Join(t.TempDir(), "state")
	build := exec.Command("go", "build", "-o", filepath.Join(bin, "berth"), "./cmd/berth")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if left, err := filepath.Glob(filepath.Join(home, "envs", "*", "env.json")); err != nil || len(left) > 0 {
			t.Errorf("environments are left: %v %v", left, err)
		}
	})
	for _, dir := range all {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			cmd := command(t, dir, "-W", "error", "-m", "unittest", "-v")
			if filepath.Base(dir) == "jupyter" {
				// Debian's packages are for its own Python, and warn of what they do themselves.
				if err := exec.Command(debian, "-c", "import ipykernel, jupyter_client").Run(); err != nil {
					t.Skip("python3-ipykernel is not installed")
				}
				cmd = command(t, dir, "-m", "unittest", "-v")
				cmd.Path, cmd.Args[0] = debian, debian
			}
			cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "BERTH_HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, "config"),
				"PYTHONPATH="+filepath.Join(top, "integrations", "python"))
			if out, err := cmd.CombinedOutput(); err != nil || !bytes.HasSuffix(bytes.TrimSpace(out), []byte("OK")) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestOldPython(t *testing.T) {
	top, _ := dirs(t)
	files, err := filepath.Glob(filepath.Join(top, "integrations", "*", "*.py"))
	if err != nil || len(files) < 8 {
		t.Fatalf("%v %v", files, err)
	}
	files = append(files, filepath.Join(top, "scripts", "wheel"))
	if out, err := command(t, top, append([]string{"-c", old}, files...)...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWheel builds the wheel twice, and has the module imported from it.
func TestWheel(t *testing.T) {
	top, _ := dirs(t)
	var first []byte
	for range 2 {
		dir := t.TempDir()
		out, err := command(t, dir, filepath.Join(top, "scripts", "wheel"), dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		wheel := strings.TrimSpace(string(out))
		b, err := os.ReadFile(wheel)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, b) {
			t.Error("two builds have other bytes")
		}
		first = b
		use := "import sys; sys.path.insert(0, sys.argv[1]); import berth, importlib.metadata as m; print(berth.__file__, m.version('berth'))"
		if out, err := command(t, dir, "-c", use, wheel).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), wheel) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
