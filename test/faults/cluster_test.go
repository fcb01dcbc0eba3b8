//go:build faults

package faults

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The places of the lane on the cluster.
const (
	image = "/opt/images/base.sif"
	files = "/home/alice/faults" // whatever else the lane has
)

// state is BERTH_HOME: on a file system that can be filled up, which the strict
// site has none of.
var state = map[bool]string{true: "/home/alice/faults/state", false: "/mnt/state/berth"}[strictSite]

// The hosts of the cluster.
var (
	nodes = []string{"c1", "c2"}
	hosts = []string{"login", "c1", "c2", "ctl"}
)

// testbed is the name of the testbed, and profile that of its site.
func testbed() string { return cmp.Or(os.Getenv("BERTH_TESTBED"), "berth-faults") }

func profile() string { return cmp.Or(os.Getenv("BERTH_TESTBED_PROFILE"), "standard") }

// container is the name of the container that is a host.
func container(host string) string {
	name := testbed() + "-24.11"
	if strictSite {
		name += "-strict"
	}
	return name + "-" + host
}

// strictSite tells that the unkind profile of the testbed is used.
var strictSite = profile() == "strict"

// answer is how a command ended.
type answer struct {
	out, err string
	code     int
}

// on runs a shell text somewhere in the cluster, in a user's login shell. It is
// not ended with the test: clean-up runs commands too. A command that could not
// be run, or took minutes, has code -1.
func on(host, user, text string) answer {
	return onFor(5*time.Minute, host, user, text)
}

func onFor(limit time.Duration, host, user, text string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := []string{"shell", "--profile", profile(), "--host", host, "--user", user, "--",
		"env", "BERTH_HOME=" + state, "XDG_CONFIG_HOME=" + files + "/config", "XDG_CACHE_HOME=" + files + "/cache", "bash", "-c", "PATH=/mnt/share/bin:$PATH; " + text}
	cmd := exec.CommandContext(ctx, "../../scripts/testbed", args...)
	cmd.Env = append(os.Environ(), "BERTH_TESTBED="+testbed())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	a := answer{out: strings.TrimSpace(out.String()), err: strings.TrimSpace(errs.String()), code: -1}
	var ee *exec.ExitError
	if err == nil || errors.As(err, &ee) {
		a.code = cmd.ProcessState.ExitCode()
	} else {
		a.err += "\n" + err.Error()
	}
	return a
}

// sh runs a shell text as alice on the login node.
func sh(text string) answer { return on("login", "alice", text) }

// ok is for a text that must succeed; it returns its stdout.
func ok(t *testing.T, host, user, text string) string {
	t.Helper()
	a := on(host, user, text)
	if a.code != 0 {
		t.Fatalf("%s as %s on %s: exit code %d\nstdout: %s\nstderr: %s", text, user, host, a.code, a.out, a.err)
	}
	return a.out
}

// docker runs a verb of docker on this machine.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// eventually waits for something to be so.
func eventually(t *testing.T, limit time.Duration, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("within %s it did not come to this: %s", limit, what)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// heal starts every daemon that does not run, lets go on what was stopped, joins
// what was cut off, and waits until the cluster takes jobs.
func heal(t *testing.T) {
	t.Helper()
	for _, h := range hosts {
		if exec.Command("docker", "unpause", container(h)).Run() == nil {
			t.Logf("%s was paused", h)
		}
		_ = exec.Command("docker", "start", container(h)).Run()
		join(h)
		a := on(h, "root", `for d in munged `+daemonsOf(h)+`; do pkill -CONT -x $d; tb-$d status >/dev/null || tb-$d start; done`)
		if a.code != 0 {
			t.Errorf("daemons on %s: %s", h, a.err)
		}
	}
	eventually(t, 3*time.Minute, "the cluster is healthy", func() bool {
		operate("DOWN|DRAIN")
		return on("login", "root", "tb-health").code == 0
	})
}

// operate is what who runs a cluster does by hand: slurmctld drains a node on
// which it finds a job that it had forgotten, and holds the job; and it takes
// minutes to miss that a node is back.
func operate(states string) {
	on("ctl", "root", `for n in c1 c2; do timeout 10 scontrol -o show node $n | grep -Eq 'State=[A-Z+]*(`+states+`)' && scontrol update NodeName=$n State=RESUME; done`)
	release()
}

// release lets jobs begin that slurmctld holds, as it does with one that a node
// refused. Nothing of berth holds a job.
func release() {
	on("ctl", "root", `timeout 10 squeue -h -t PD -o '%i %r' | awk '/held/ {print $1}' | xargs -r -n 1 timeout 10 scontrol release; true`)
}

// daemonsOf are the daemons of a host besides munged.
func daemonsOf(host string) string {
	switch {
	case host == "ctl" && strictSite:
		return "slurmctld"
	case host == "ctl":
		return "mariadbd slurmdbd slurmctld"
	case host == "login":
		return "sshd"
	}
	return "slurmd"
}

// cut takes a host off the network; its files stay where they are, but for those
// that come over the network.
func cut(host string) answer { return on(host, "root", "ip link set eth0 down") }

// join puts it back.
func join(host string) answer { return on(host, "root", "ip link set eth0 up") }
