//go:build docker

package docker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/backends/docker"
	"berth/internal/sys/run"
	"berth/jobs"
)

// plant leaves a setuid copy of id in the bound directory: chmod, and a file
// that is made with the bit.
const plant = `cd /w || exit 3
cp id chmod && chmod 4755 chmod
python3 -c 'import os
os.umask(0); os.close(os.open("open", os.O_CREAT | os.O_WRONLY, 0o4755))
os.mknod("mknod", 0o104755)' || perl -e 'umask 0; sysopen(F, "open", 0101, 04755)'
ls -l; exit 0`

// noRootOutside runs what was planted as nobody, on the host.
func noRootOutside(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		fi, err := e.Info()
		must(t, err)
		if st := fi.Sys().(*syscall.Stat_t); fi.Mode()&os.ModeSetuid != 0 && st.Uid == 0 || fi.Mode()&os.ModeSetgid != 0 && st.Gid == 0 {
			t.Errorf("%s is %v of %d:%d", e.Name(), fi.Mode(), st.Uid, st.Gid)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "chmod"), "-u")
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if out, err := cmd.Output(); strings.TrimSpace(string(out)) == "0" {
		t.Errorf("nobody is root: %s, %v", out, err)
	}
}

// shared is a directory for the bind, which all may write to, with a program
// that tells who it runs as.
func shared(t *testing.T) string {
	t.Helper()
	id, err := exec.LookPath("id")
	must(t, err)
	b, err := os.ReadFile(id)
	must(t, err)
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // who runs inside, and nobody, come in
	must(t, os.WriteFile(filepath.Join(dir, "id"), b, 0o755))
	must(t, os.Chmod(dir, 0o777))
	return dir
}

// TestNoSetuidRoot: whoever is named, and named by whatever word, no setuid file
// of root stands in a bound directory afterwards.
func TestNoSetuidRoot(t *testing.T) {
	bind := func(s *jobs.EnvSpec, dir string) {
		s.Mounts = []jobs.Mount{{Source: dir, Destination: "/w", Writable: true}}
	}
	volume := func(s *jobs.EnvSpec, dir string) { s.Docker.Volumes = []string{dir + ":/w:z"} }
	for _, c := range []struct {
		user    string
		mount   func(*jobs.EnvSpec, string)
		refused bool
	}{
		{"", bind, os.Getuid() == 0}, {"", volume, os.Getuid() == 0}, {"1234:1234", bind, false}, {"1234:1234", volume, false},
		{"0:0", bind, true}, {"0:0", volume, true}, {"root", bind, true}, {"+0:7", bind, true}, {"00", bind, true}, {"www-data", bind, true}, {"1234:0", bind, true}, {"1234", bind, true},
	} {
		t.Run(fmt.Sprintf("%q", c.user), func(t *testing.T) {
			dir := shared(t)
			e := plan(t, func(s *jobs.EnvSpec) {
				s.Docker = &jobs.DockerSpec{User: c.user}
				c.mount(s, dir)
			})
			o, err := e.prepare()
			switch {
			case err != nil:
				if !c.refused || jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), dir) || !strings.Contains(jobs.HintOf(err), "read-only") {
					t.Errorf("%v, hint %q", err, jobs.HintOf(err))
				}
				return
			case c.refused:
				t.Error("it is not refused")
			}
			e.start(o)
			out, code := e.sh(plant)
			t.Logf("exit %d: %s", code, out)
			who := map[bool]string{true: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), false: c.user}[c.user == ""]
			if !c.refused {
				e.want(`echo $(id -u):$(id -g); cd "$HOME" && touch x && echo home`, who+"\nhome")
				if noted := strings.Contains(strings.Join(e.opening.Notes, " "), "not as root"); noted != (c.user == "") {
					t.Errorf("%q", e.opening.Notes)
				}
			}
			e.stop()
			noRootOutside(t, dir)
			if o, err = e.prepare(); err == nil { // and again, the one that was made so
				e.start(o)
				e.want("id -u; ls /w/id", strings.Split(who, ":")[0]+"\n/w/id")
			} else if !c.refused {
				t.Error(err)
			}
		})
	}
	// A bind that cannot be written to takes nothing from root inside.
	dir := shared(t)
	e := plan(t, func(s *jobs.EnvSpec) {
		s.Mounts = []jobs.Mount{{Source: dir, Destination: "/w"}}
		s.Docker = &jobs.DockerSpec{Volumes: []string{dir + ":/v:ro", "/anonymous"}}
	}).open()
	e.want("id -u; chmod 4755 /w/id /v/id 2>/dev/null || echo read-only", "0\nread-only")
}

// TestOlderContainer: one that runs as root beside a writable bind was made
// before berth knew better; it is told of and left as it is.
func TestOlderContainer(t *testing.T) {
	dir := shared(t)
	e := plan(t, func(s *jobs.EnvSpec) {
		s.Mounts = []jobs.Mount{{Source: dir, Destination: "/w", Writable: true}}
		s.Docker = &jobs.DockerSpec{User: "1234:1234"}
	})
	id := ask(t, "create", "--name", "berth-test-"+jobs.Short(e.spec.ID), "--label", "berth.version=1", "--label", "berth.env="+e.spec.ID, "--label", "berth.name=test",
		"--label", "berth.home="+home, "--label", fmt.Sprintf("berth.user=%d", os.Getuid()), "--mount", "type=bind,source="+dir+",destination=/w", image, "true")
	if _, err := e.prepare(); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "root") || !strings.Contains(jobs.HintOf(err), "cp "+id[:12]) || !strings.Contains(jobs.HintOf(err), "berth env rm test") {
		t.Errorf("%v, hint %q", err, jobs.HintOf(err))
	}
	if got := ask(t, "ps", "-aq", "--no-trunc", "--filter", "id="+id); got != id {
		t.Errorf("it is gone: %q", got)
	}
}

// TestJobNoSetuidRoot is the same of a job's container.
func TestJobNoSetuidRoot(t *testing.T) {
	for _, user := range []string{"0:0", "1234:1234"} {
		dir := shared(t)
		j, err := attempt(t, user, []jobs.Mount{{Source: dir, Destination: "/w", Writable: true}})
		if (err != nil) != (user == "0:0") || err != nil && (jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), dir)) {
			t.Errorf("%s: %v", user, err)
		}
		if err != nil {
			continue
		}
		argv, _, err := j.Line(jobs.LineAt{Guest: node, Scratch: t.TempDir(), Work: dir})
		must(t, err)
		e := &env{t: t}
		t.Cleanup(e.stop)
		e.start(&jobs.Opening{Argv: argv, Env: j.Env, OwnPIDNamespace: true, End: j.End})
		e.want("id -u", "1234")
		_, _ = e.sh(plant)
		e.stop()
		noRootOutside(t, dir)
	}
	// Berth's own /work alone is no reason.
	if _, err := attempt(t, "0:0", nil); err != nil {
		t.Error(err)
	}
}

// attempt opens the place of a job's attempt, with a work tree.
func attempt(t *testing.T, user string, binds []jobs.Mount) (*jobs.Opening, error) {
	s := &jobs.Spec{User: "alice", Workspace: &jobs.WorkspaceSpec{}, Place: jobs.Place{Backend: jobs.BackendDocker, Image: image, Network: jobs.Network{Mode: "none"}, Mounts: binds}}
	at := jobs.OpenPlace{Dir: t.TempDir(), Guest: node, Scratch: t.TempDir(), On: run.Local{}, Progress: func(string) {},
		Attempt: &jobs.OpenAttempt{Spec: s, Name: "berth-test-" + user[:1], User: user}}
	return (&docker.Backend{On: run.Local{}}).Open(t.Context(), s.Environment(jobs.AttemptInfo{ID: "a"}, t.TempDir()), at)
}

// TestAsCaller is TestNoSetuidRoot as another user than root, who may talk to
// the daemon.
func TestAsCaller(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the tests run as such a user already")
	}
	fi, err := os.Stat("/var/run/docker.sock")
	must(t, err)
	dir := shared(t)
	must(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o777))
	must(t, os.Chmod(filepath.Join(dir, "tmp"), 0o777))
	for from, to := range map[string]string{node: "berth-node", os.Args[0]: "tests"} {
		b, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, to), b, 0o755))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "tests"), "-test.run", "^(TestNoSetuidRoot|TestOlderContainer)$", "-test.count=1", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"), "BERTH_TEST_NODE=" + filepath.Join(dir, "berth-node")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1235, Gid: 1235, Groups: []uint32{fi.Sys().(*syscall.Stat_t).Gid}}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS: TestNoSetuidRoot") || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
}
