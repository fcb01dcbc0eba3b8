//go:build faults

package faults

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
)

// begun tells that the cluster is prepared.
var begun bool

// tag tells this run's jobs from those of others on the same cluster.
var tag = strings.ToLower(rand.Text()[:6])

// mark is the name of a job of this run.
func mark(name string) string { return name + "-" + tag }

// begin prepares the cluster for the lane, once.
func begin(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("slurmctld said of nodes and requeued jobs:\n%s", on("ctl", "root", "grep -aiE 'requeu|respond|down|killing' /var/log/slurm/slurmctld.log | tail -n 25").out)
		}
	})
	if begun {
		return
	}
	begun = true
	heal(t)
	// What a run before this one has left is of no interest.
	on("ctl", "root", "scancel -u alice; scancel -u bob; for i in $(seq 100); do [ -z \"$(squeue -h -u alice,bob)\" ] && break; sleep 0.2; done")
	for _, h := range hosts {
		on(h, "root", "pkill -9 -u alice; rm -rf /tmp/pattern /tmp/seen /tmp/berth-1000-* /var/tmp/berth-1000-*; true")
	}
	on("login", "root", "rm -rf "+state+" "+files)
	ok(t, "login", "root", "install -d -o alice -g alice -m 700 "+files+" "+files+"/config; [ -d "+state+" ] || install -d -o alice -g alice -m 700 "+state)
	// The canary is in no command line, of this lane's either.
	canary := "canary-" + rand.Text()
	ok(t, "login", "alice", `umask 077; printf '`+canary+`' >~/.canary
mkdir -p `+files+`/config/berth/profiles
printf 'beat = "1100ms"\nstage = "never"\n' >`+files+`/config/berth/profiles/fast.toml
printf 'stage = "never"\n' >`+files+`/config/berth/profiles/real.toml
`+map[bool]string{true: `sed -i '1i forbid = ["mem"]\noverlay = "ext3"' ` + files + "/config/berth/profiles/*.toml"}[strictSite]+`
[ -d `+files+`/repo ] || { git init -q -b main `+files+`/repo && cd `+files+`/repo && echo one >file && git add . && git -c user.name=a -c user.email=a@b commit -qm one; }
berth overlay ls >/dev/null`)
	missedAfter(t, 10)
	heal(t)
	remember(t)
}

// missedAfter is after how many seconds of silence slurmctld gives a node up: the
// lane has a short time, so that a lost one is missed soon.
func missedAfter(t *testing.T, seconds int) {
	t.Helper()
	if !strictSite {
		ok(t, "ctl", "root", fmt.Sprintf("sed -i 's/^SlurmdTimeout=.*/SlurmdTimeout=%d/' /etc/slurm/slurm.conf && scontrol reconfigure", seconds))
	}
}

// notMissed is for a test under which no node is to be given up, however slow the
// machine is.
func notMissed(t *testing.T) {
	t.Helper()
	missedAfter(t, 300)
	t.Cleanup(func() {
		missedAfter(t, 10)
		heal(t)
	})
}
