//go:build docker

package room

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocker: a container of docker's has a room where its filter of system calls and its
// masks of /proc are off; as it is by default it has none, and goes on without.
func TestDocker(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "berth-testbed-base").Output()
	if err != nil || len(out) == 0 {
		t.Skip("no docker here, or not the image that scripts/testbed makes")
	}
	image := strings.Fields(string(out))[0]
	program := filepath.Join(t.TempDir(), "room.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	// The options of berth's own containers, and without them.
	own := []string{"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "12345:12345"}
	noFilter, noMasks := []string{"--security-opt", "seccomp=unconfined"}, []string{"--security-opt", "systempaths=unconfined"}
	for _, c := range []struct {
		name  string
		flags [][]string
		want  string
	}{
		{"user", [][]string{own, noFilter, noMasks}, ""},
		{"root", [][]string{noFilter, noMasks}, ""},
		{"filter", [][]string{own, noMasks}, "make the namespaces of a room: operation not permitted"},
		{"masks", [][]string{own, noFilter}, "mount a /proc for the room: operation not permitted: the container's own has a mount over /proc/"},
	} {
		argv := []string{"run", "--rm", "--network", "none", "-v", program + ":/room.test:ro", "-e", roleVar + "=all", "--entrypoint", "/room.test"}
		for _, f := range c.flags {
			argv = append(argv, f...)
		}
		var text strings.Builder
		cmd := exec.CommandContext(t.Context(), "docker", append(argv, image)...)
		cmd.Stderr = &text
		out, err := cmd.Output()
		if c.want != "" {
			if err == nil || !strings.HasPrefix(text.String(), c.want) {
				t.Errorf("%s: %v, %s", c.name, err, text.String())
			}
			continue
		}
		var seen map[string]string
		if err := json.Unmarshal(out, &seen); err != nil {
			t.Fatalf("%s: %v, %s%s", c.name, err, out, text.String())
		}
		compare(t, seen, c.name == "user")
	}
}
