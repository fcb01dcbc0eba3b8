//go:build cluster

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/test/goapi"
)

// TestGoAPI runs a program that uses the Go API, built by go build: a task and 30 commands
// in a container on the login node, and both in allocations.
func TestGoAPI(t *testing.T) {
	each(t, []site{standard}, func(t *testing.T, s site) {
		program := s.share(t, goapi.Build(t, root(t), t.TempDir()))
		t.Cleanup(func() { s.sh(t, "berth env rm --force goapi") })
		for _, where := range []string{"", "--scheduler slurm "} {
			// The directory is no project's.
			a := s.want(t, "cd; "+program+" --backend singularity "+where+"--image "+s.image, 0)
			goapi.Check(t, a.out)
			if t.Failed() {
				t.Logf("%sstderr: %s", where, a.err)
			}
			if envs := s.ok(t, "berth env ls --json"); strings.Contains(envs, `"goapi"`) {
				t.Errorf("the environment is left: %s", envs)
			}
		}
	})
}

// share copies a program to where all hosts see it, and returns its path there.
func (s site) share(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(root(t), "scripts", "testbed"), "share", "--slurm", s.version, "--profile", s.profile)
	cmd.Env = append(os.Environ(), "BERTH_TESTBED="+s.bed())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("scripts/testbed share: %v", err)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(program)
	// Not over one that runs.
	to := filepath.Join(strings.TrimSpace(string(out)), "bin", name)
	for _, err := range []error{os.WriteFile(to+".new", data, 0o700), os.Chmod(to+".new", 0o755), os.Rename(to+".new", to)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Remove(to) })
	return "/mnt/share/bin/" + name
}
