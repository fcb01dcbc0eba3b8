//go:build linux

package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"berth/test/fakes/internet"
)

// dirVar is where the programs are, and all else that the tests make.
const dirVar = "BERTH_TEST_NETWORK"

// top is that directory, and "" where no machine of our own can be made.
var top = os.Getenv(dirVar)

func TestMain(m *testing.M) {
	code, err := testMain(m)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testMain(m *testing.M) (code int, err error) {
	if top == "" {
		if os.Getuid() != 0 {
			return m.Run(), nil
		}
		// Everyone may pass through: the tests' user is not this one.
		dir, err := os.MkdirTemp("", "berth-network-")
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		if err := errors.Join(os.Chmod(dir, 0o755), os.Setenv(dirVar, dir), build(dir)); err != nil {
			return 0, err
		}
		top = dir
	}
	return internet.Around(filepath.Join(top, "internet"), m.Run)
}

// build makes the programs while there is still a network to fetch modules from.
func build(dir string) error {
	c := exec.Command("go", "build", "-o", dir+"/bin/", "berth/cmd/berth", "berth/test/fakes/internet/probe")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	if _, err := exec.LookPath("musl-gcc"); err != nil {
		return nil
	}
	if out, err := exec.Command("musl-gcc", "-static", "-o", dir+"/bin/musl-resolve", "testdata/resolve.c").CombinedOutput(); err != nil {
		return fmt.Errorf("musl-gcc: %w\n%s", err, out)
	}
	return nil
}
