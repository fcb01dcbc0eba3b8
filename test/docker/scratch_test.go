//go:build docker

package docker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A job's guest is a file of the node's scratch directory, so that a state
// directory which goes away does not end it; and one of the state directory
// where the daemon does not see that of the job, as with a /tmp of its own, or
// may not run it.
func TestGuestOnScratch(t *testing.T) {
	dir, berth, command := client(t)
	scratch := filepath.Join(dir, "scratch")
	must(t, os.Mkdir(scratch, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "t.md"), []byte("+++\nname = 'where'\n[agent]\ncommand = 'grep /.berth/node /proc/self/mountinfo'\n+++\n"), 0o600))
	run := []string{"env", "TMPDIR=" + scratch, berth, "run", "--scheduler", "local", "--backend", "docker", "--image", image, "t.md"}
	for _, c := range []struct {
		name      string
		before    []string
		onScratch bool
	}{
		{"seen", nil, true},
		{"private", []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none "$0" && exec "$@"`, scratch}, false},
		{"noexec", []string{"unshare", "-m", "sh", "-c", `mount --bind "$0" "$0" && mount -o remount,bind,noexec "$0" && exec "$@"`, scratch}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, code := command(append(c.before, run...)...)
			if code != 0 || !strings.Contains(out, " /.berth/node ro") {
				t.Fatalf("exit %d: %s", code, out)
			}
			found, err := filepath.Glob(filepath.Join(dir, "state", "jobs", "*", "*", "attempts", "*", "argv.json"))
			if err != nil || len(found) != 1 {
				t.Fatalf("%q, %v", found, err)
			}
			argv, err := os.ReadFile(found[0])
			must(t, err)
			if got := strings.Contains(string(argv), "source="+scratch+"/"); got != c.onScratch {
				t.Errorf("on the scratch directory: %v: %s", got, argv)
			}
			if noted := strings.Contains(out, "the guest runs from "); noted == c.onScratch {
				t.Errorf("a note: %v: %s", noted, out)
			}
			must(t, os.RemoveAll(filepath.Join(dir, "state", "jobs")))
		})
	}
}
