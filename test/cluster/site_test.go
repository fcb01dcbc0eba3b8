//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// site is one cluster of scripts/testbed.
type site struct {
	version, profile string
	image            string // "" where there is no Apptainer
}

var (
	standard = site{version: "24.11", profile: "standard", image: "/opt/images/base.sif"}
	old      = site{version: "22.05", profile: "standard"}
	newer    = site{version: "26.05", profile: "standard", image: "/opt/images/base.sif"}
	strict   = site{version: "24.11", profile: "strict", image: "/opt/images/base.sif"}
)

// answer is how a command on the login node ended.
type answer struct {
	out, err string
	code     int
}

// root is the top of the checkout.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// on runs a program somewhere in the cluster as a user.
func (s site) on(t *testing.T, host, user string, argv ...string) answer {
	t.Helper()
	// Not ended with the test: clean-up runs commands too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
	defer cancel()
	args := append([]string{"shell", "--slurm", s.version, "--profile", s.profile, "--host", host, "--user", user, "--"}, argv...)
	cmd := exec.CommandContext(ctx, filepath.Join(root(t), "scripts", "testbed"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatalf("%v: %v\n%s", argv, err, errs.String())
	}
	return answer{out: out.String(), err: errs.String(), code: cmd.ProcessState.ExitCode()}
}

// sh runs a shell text as alice on the login node.
func (s site) sh(t *testing.T, text string) answer {
	t.Helper()
	return s.on(t, "login", "alice", "bash", "-c", "export PATH=/mnt/share/bin:$PATH; "+text)
}

// ok is sh for a text that must succeed; it returns its stdout.
func (s site) ok(t *testing.T, text string) string {
	t.Helper()
	a := s.sh(t, text)
	if a.code != 0 {
		t.Fatalf("%s\nexit code %d\nstdout: %s\nstderr: %s", text, a.code, a.out, a.err)
	}
	return strings.TrimSpace(a.out)
}

// want runs a text whose exit code and stderr are known beforehand.
func (s site) want(t *testing.T, text string, code int, stderr ...string) answer {
	t.Helper()
	a := s.sh(t, text)
	if a.code != code {
		t.Fatalf("%s\nexit code %d, want %d\nstdout: %s\nstderr: %s", text, a.code, code, a.out, a.err)
	}
	for _, re := range stderr {
		if !regexp.MustCompile(re).MatchString(a.err) {
			t.Errorf("%s\nstderr does not match %q:\n%s", text, re, a.err)
		}
	}
	return a
}

// need skips when the cluster is not up. scripts/test fails on such a skip
// where the cluster must be there.
func (s site) need(t *testing.T) {
	t.Helper()
	if out, err := s.healthy(t); err != nil {
		t.Skipf("the cluster %s %s is not up: %s", s.version, s.profile, out)
	}
}

func (s site) healthy(t *testing.T) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(root(t), "scripts", "testbed"), "status", "--slurm", s.version, "--profile", s.profile).CombinedOutput()
	return string(out), err
}

// put writes a file of alice's in a fresh directory that the nodes see, and
// returns the directory.
func (s site) dir(t *testing.T) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, t.Name())
	d := s.ok(t, "mktemp -d ~/"+name+".XXXXXX")
	t.Cleanup(func() {
		if os.Getenv("BERTH_KEEP") == "" {
			s.on(t, "login", "root", "rm", "-rf", d)
		}
	})
	return d
}

// status is what the tests read of `berth status --json`.
type status struct {
	ID, Short, Name, State string
	Final                  bool
	ExitCode               int `json:"exit_code"`
	Exit                   struct {
		Started      bool
		Code, Signal int
		OOM          bool
	}
	Reason, Hint string
	NativeID     string `json:"native_id"`
	Word         string `json:"scheduler_state"`
	Node, Dir    string
	Branch       string
	Taken        bool `json:"branch_taken"`
	Result       struct {
		Base, Commit                 string
		Files, Insertions, Deletions int
		OutOfScope                   []string `json:"out_of_scope"`
	}
	Artifacts []string
	OOMKills  int `json:"oom_kills"`
	Notes     []string
}

func (s site) status(t *testing.T, id string) status {
	t.Helper()
	var got struct{ Jobs []status }
	out := s.ok(t, "berth status --json "+id)
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Jobs) != 1 {
		t.Fatalf("status of %s: %v\n%s", id, err, out)
	}
	return got.Jobs[0]
}

// wait waits for a job and checks the exit code.
func (s site) wait(t *testing.T, id string, code int) status {
	t.Helper()
	a := s.sh(t, "berth wait --timeout 150s "+id)
	if a.code != code {
		t.Fatalf("berth wait %s: exit code %d, want %d\n%s\n%s\nruntime log:\n%s", id, a.code, code, a.err, s.sh(t, "berth status "+id).out, s.sh(t, "berth logs --runtime "+id).out)
	}
	return s.status(t, id)
}

// state waits until a job is in a state.
func (s site) state(t *testing.T, id, state string) status {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		st := s.status(t, id)
		if st.State == state {
			return st
		}
		if st.Final || time.Now().After(deadline) {
			t.Fatalf("job %s is %s (%s), want %s", id, st.State, st.Reason, state)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// quiet checks that a job has left nothing on the nodes: no process of
// berth's or of a test's task (they sleep 31x seconds), no scratch directory, no
// FUSE mount.
func (s site) quiet(t *testing.T) {
	t.Helper()
	for _, node := range []string{"c1", "c2"} {
		deadline := time.Now().Add(20 * time.Second)
		for {
			left := s.on(t, node, "root", "bash", "-c", `pgrep -u alice -af "berth|apptainer|fuse|sleep 31[0-9]"; ls -d /tmp/berth-1000-* /var/tmp/berth-1000-* 2>/dev/null; grep -E 'fuse\.(squashfuse|fuse-overlayfs|fuse2fs)' /proc/mounts`)
			if strings.TrimSpace(left.out) == "" {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("left on %s:\n%s", node, left.out)
				break
			}
			time.Sleep(300 * time.Millisecond)
		}
	}
}
