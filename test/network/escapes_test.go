//go:build linux

package network

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// berth is a command line of it, as the user.
func berth(t *testing.T, words ...string) *exec.Cmd {
	t.Helper()
	return command(t, append([]string{filepath.Join(top, "bin", "berth")}, words...)...)
}

// job runs a command in a container with flags, and returns what it has printed.
func job(t *testing.T, flags []string, argv ...string) ran {
	t.Helper()
	words := append([]string{"run", "--scheduler", "local", "--backend", "bwrap", "--bind", filepath.Join(top, "bin") + ":/opt/bin", "--bind", filepath.Join(top, "internet", "ca.pem") + ":/opt/ca.pem"}, flags...)
	return run(t, berth(t, append(append(words, "--"), argv...)...))
}

// withoutRoom is what a task can do where it has none: the first process of its container is bwrap's, which is the
// same user's and has the guest's streams. It is no way out: what the guest is told there ends the task's own attempt.
var withoutRoom = []string{"tracing the first process", "the first process in /proc", "memory and files of the first process", "limits of the first process"}

// machines are sockets to the host of a virtual machine, which no namespace of the network keeps apart.
var machines = []string{"sockets to virtual machines and their host", "families of other networks"}

// escape plays the probe in a container: all it tries has to hold, but for what is known to be open.
func escape(t *testing.T, flags, known []string, args ...string) {
	t.Helper()
	got := job(t, flags, append([]string{"/opt/bin/probe"}, probeArgs(args...)...)...)
	all := probes(t, got.out)
	if len(all) < 10 || got.code != 0 {
		t.Fatalf("%d lines, exit code %d: %s\n%s", len(all), got.code, got.out, got.err)
	}
	for _, p := range all {
		if p.word == "open" && !slices.Contains(known, p.name) {
			t.Errorf("%s: open: %s", p.name, p.seen)
		}
		t.Logf("%s: %s: %s", p.name, p.word, p.seen)
	}
}

// Without a network nothing leaves, not even a question.
func TestEscapesNone(t *testing.T) {
	needNode(t)
	at := mark(t)
	// A signal ends the guest there, and one of several addresses is to be reached.
	escape(t, []string{"--network", "none"}, slices.Concat(withoutRoom, machines), "-many", "0", "-skip", "signals to the first process,one of several addresses")
	for _, e := range arrived(t, at) {
		t.Errorf("arrived: %+v", e)
	}
}
