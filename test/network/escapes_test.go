//go:build linux

package network

import (
	"os"
	"strings"

	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"berth/test/fakes/internet"
)

// berth is a command line of it, as the user.
func berth(t *testing.T, words ...string) *exec.Cmd {
	t.Helper()
	return command(t, append([]string{filepath.Join(top, "bin", "berth")}, words...)...)
}

// job runs a command in a container with flags, and variables of berth's before them, and returns what it has printed.
func job(t *testing.T, flags []string, argv ...string) ran {
	t.Helper()
	env := 0
	for env < len(flags) && !strings.HasPrefix(flags[env], "-") {
		env++
	}
	words := []string{"run", "--scheduler", "local", "--bind", filepath.Join(top, "bin") + ":/opt/bin", "--bind", filepath.Join(top, "internet",
		"ca.pem") + ":/opt/ca.pem"}
	if !slices.Contains(flags, "--backend") {
		words = append(words, "--backend", "bwrap")
	}
	c := berth(t, slices.Concat(words, flags[env:], []string{"--"}, argv)...)
	if slices.Contains(flags, "docker") { // whose daemon listens to root
		c.SysProcAttr, c.Dir = nil, top
		c.Env = append(c.Env, "HOME="+filepath.Join(top, "root"), "TMPDIR="+filepath.Join(top, "root"))
	}
	c.Env = append(c.Env, flags[:env]...)
	return run(t, c)
}

// withoutRoom is what a task can do where it has none: the first process of its container is bwrap's, which is the
// same user's and has the guest's streams. It is no way out: what the guest is told there ends the task's own attempt.
var withoutRoom = []string{"tracing the first process", "the first process in /proc", "memory and files of the first process", "limits of the first process"}

// escape plays the probe in a container: all it tries has to hold, but for what is known to be open.
func escape(t *testing.T, flags, known []string, args ...string) {
	t.Helper()
	heard(t, job(t, flags, append([]string{"/opt/bin/probe"}, probeArgs(args...)...)...), known)
}

// heard looks at what a probe has said.
func heard(t *testing.T, got ran, known []string) {
	t.Helper()
	all, err := internet.ReadProbes(got.out)
	if len(all) < 10 || got.code != 0 || err != nil {
		t.Fatalf("%d lines, exit code %d, %v: %s\n%s", len(all), got.code, err, got.out, got.err)
	}
	for _, p := range all {
		if p.Open && !slices.Contains(known, p.Name) {
			t.Errorf("%s: open: %s", p.Name, p.Seen)
		}
	}
}

// Without a network nothing leaves, not even a question.
func TestEscapesNone(t *testing.T) {
	needNode(t)
	at := mark(t)
	// A signal ends the guest there, and one of several addresses is to be reached.
	escape(t, []string{"--network", "none"}, withoutRoom, "-many", "0", "-skip",
		"signals to the first process,one of several addresses")
	for _, e := range arrived(t, at) {
		t.Errorf("arrived: %+v", e)
	}
}

// list is what the task of the tests may reach. Names whose addresses are refused are allowed as names.
func list() (flags []string) {
	flags = []string{"--network", "allow"}
	for _, w := range internet.Allowed() {
		flags = append(flags, "--allow", w)
	}
	return flags
}

// With names on a list nothing leads anywhere else, and the internet has seen no packet and
// no question of it. Only the supervisor asks, and connects.
func TestEscapesAllow(t *testing.T) {
	needNode(t)
	at := mark(t)
	escape(t, list(), nil)
	onlyAllowed(t, at)
}

// alone is job without the transparent door.
func alone(t *testing.T, flags []string, argv ...string) ran {
	t.Helper()
	dir := filepath.Join(top, "never", "berth")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "config.toml"), []byte("[network]\ntransparent = \"never\"\n"), 0o644))
	return job(t, append([]string{"XDG_CONFIG_HOME=" + filepath.Dir(dir)}, flags...), argv...)
}

// The proxy door, beside the other one and alone.
func TestEscapesProxy(t *testing.T) {
	needNode(t)
	script := "/opt/bin/probe " + strings.Join(probeArgs("-proxy", "${http_proxy#http://}"), " ")
	for _, in := range []func(*testing.T, []string, ...string) ran{job, alone} {
		at := mark(t)
		heard(t, in(t, list(), "sh", "-c", script), nil)
		onlyAllowed(t, at)
	}
}

// Without the transparent door all is shut but the proxy.
func TestEscapesAlone(t *testing.T) {
	needNode(t)
	at := mark(t)
	probe := append([]string{"/opt/bin/probe"}, probeArgs("-many", "0", "-skip", "signals to the first process,one of several addresses")...)
	heard(t, alone(t, list(), probe...), withoutRoom)
	onlyAllowed(t, at)
}

// onlyAllowed looks at what has arrived since a mark.
func onlyAllowed(t *testing.T, at int) {
	t.Helper()
	for _, e := range internet.Stray(internet.Sites, arrived(t, at)) {
		t.Errorf("arrived: %+v", e)
	}
}
