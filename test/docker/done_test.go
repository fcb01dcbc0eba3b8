//go:build docker

package docker_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A job's checks find nothing of the task's, as TestDone of test/cluster has it
// for the backend singularity: the container is another one.
func TestDone(t *testing.T) {
	dir, berth, command := client(t)
	const forgery = `
printf '#!/bin/sh\necho FORGED >&2\nexit 0\n' >/usr/local/bin/python3
chmod 755 /usr/local/bin/python3
echo >/tmp/planted
echo nothing >>README.md
python3
`
	task := func(head, done string) []string {
		t.Helper()
		text := "+++\nname = 'forge'\n" + head + "done = ['''" + done + "''']\n[agent]\ncommand = '''" + forgery + "'''\n[workspace]\nrepo = 'repo'\n+++\n"
		must(t, os.WriteFile(filepath.Join(dir, "t.md"), []byte(text), 0o600))
		return []string{berth, "run", "--scheduler", "local", "--backend", "docker", "--image", image, "t.md"}
	}
	if out, code := command(task("", "test -e /usr/bin/python3 && python3 -m unittest -q")...); code != 1 || strings.Count(out, "FORGED") > 1 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := command(task("", "test ! -e /usr/local/bin/python3 && test ! -e /tmp/planted")...); code != 0 || !strings.Contains(out, "FORGED") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := command(task("done_over = 'task'\n", "true")...); code != 78 || !strings.Contains(out, "done_over") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// client builds berth in a directory of the test's, beside the repository of an
// example, and runs commands there with a state directory of its own.
func client(t *testing.T) (dir, berth string, command func(argv ...string) (out string, code int)) {
	t.Helper()
	caches, err := os.UserCacheDir() // of the compiler's alone
	must(t, err)
	dir = t.TempDir()
	berth = filepath.Join(dir, "berth")
	command = func(argv ...string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = dir, append(append([]string{"GOCACHE=" + filepath.Join(caches, "go-build")}, os.Environ()...), "CGO_ENABLED=0", "BERTH_HOME="+filepath.Join(dir, "state"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
		out, err := cmd.CombinedOutput()
		if ee := new(exec.ExitError); err != nil && !errors.As(err, &ee) {
			t.Fatalf("%q: %v", argv, err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	here, err := os.Getwd()
	must(t, err)
	for _, argv := range [][]string{
		{"go", "build", "-C", filepath.Join(here, "../.."), "-o", berth, "./cmd/berth"},
		{filepath.Join(here, "../../examples/fix-the-test/make-repo"), "repo"},
	} {
		if out, code := command(argv...); code != 0 {
			t.Fatalf("%q: %s", argv, out)
		}
	}
	return dir, berth, command
}
