//go:build docker

package docker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a task submits has a container of its own, in the task's image and without the
// network that the task does not have, and ends with it.
func TestChildren(t *testing.T) {
	dir, berth, command := client(t)
	task := `+++
name = "asking"
[workspace]
repo = "repo"
[agent]
command = """
exec 2>&1
echo one >new.txt
srun sh -c 'cat new.txt; grep -c : /proc/net/dev; echo made >made.txt; exit 4'; echo "code $?"
git apply $BERTH_JOBS/1/result.patch; cat made.txt
sbatch -t 2 --wrap true 2>&1 | head -1
sbatch --wrap 'sleep 319'
"""
[network]
mode = "none"
[submit]
max_jobs = 2
max_cpu_hours = 1
time = "1m"
end_with_parent = true
+++
`
	must(t, os.WriteFile(filepath.Join(dir, "t.md"), []byte(task), 0o600))
	out, code := command(berth, "run", "--scheduler", "local", "--backend", "docker", "--image", image, "t.md")
	const want = "one\n1\ncode 4\nmade\nsbatch: error: a time of 2m0s is more than 1m0s\nSubmitted batch job 2\n"
	if code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit code %d: %s", code, out)
	}
	out, code = command(berth, "ps", "--all")
	rows := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(rows) != 3 || strings.Count(out, "\t+ asking job\t") != 2 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	last, _, _ := strings.Cut(rows[2], "\t")
	if out, code := command(berth, "wait", "--timeout", "1m", last); code != 130 {
		t.Errorf("what was left of its jobs: exit code %d: %s", code, out)
	}
}
