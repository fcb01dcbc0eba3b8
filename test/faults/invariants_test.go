//go:build faults

package faults

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// invariants asserts what holds after every fault, once all jobs have ended: the
// numbers are those of docs/reliability.md.
func invariants(t *testing.T) map[string]*jobs.Record {
	t.Helper()
	recs := settled(t)
	oneResult(t, recs)
	kept(t, recs)
	strangers(t, recs)
	overlays(t)
	quiet(t)
	unchanged(t)
	silentAbout(t)
	return recs
}

// settled waits until every job has ended by itself: no one asks berth. What was
// never acknowledged, and that no scheduler has, may stay open: it counts as
// failed when someone looks ten minutes later.
func settled(t *testing.T) map[string]*jobs.Record {
	t.Helper()
	var recs map[string]*jobs.Record
	var open []string
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Second) {
		recs, open = ledger(t), nil
		for id, r := range recs {
			a := r.Current()
			if _, is := acked.Load(id); is || a.Submitted != nil || a.Claim != nil {
				// What the runner could not decide at its end the reaper does after it.
				if !jobs.StateOf(r).Final() || r.Spec.Retry != nil && a.Decision == nil {
					open = append(open, id)
				}
			}
		}
		if recs != nil && len(open) == 0 {
			return recs
		}
		operate("DOWN|DRAIN")
		if time.Now().After(deadline) {
			break
		}
	}
	for _, id := range open {
		t.Errorf("every acknowledged job ends: %s has not, in %s, without anybody looking:\n%s%s", id, patience, tell(recs[id]), sh("berth explain "+id).out)
	}
	t.Log(on("ctl", "root", "squeue -a; sinfo -N; for n in c1 c2; do echo; done").out)
	return recs
}

// patience is how long the jobs may take to end when there are no more faults.
var patience = 4 * time.Minute

// oneResult is I1: at most one attempt of a job is accepted, and only the last
// one; the branch is that of this attempt.
func oneResult(t *testing.T, recs map[string]*jobs.Record) {
	t.Helper()
	for id, r := range recs {
		accepted := 0
		for i := range r.Attempts {
			a := &r.Attempts[i]
			if a.N != i+1 {
				t.Errorf("I1: job %s has an attempt %d in place %d", id, a.N, i+1)
			}
			d := a.Decision
			if d == nil && r.Spec.Retry != nil && jobs.StateOf(r).Final() {
				t.Errorf("I1: nothing was decided about attempt %d of job %s:\n%s", a.N, id, tell(r))
			}
			if d != nil && d.Verb == jobs.VerbAccept {
				accepted++
				if i != len(r.Attempts)-1 {
					t.Errorf("I1: attempt %d of job %s was accepted, and there is another:\n%s", a.N, id, tell(r))
				}
			}
			if a.Taken != nil && (d == nil || d.Verb != jobs.VerbAccept) && r.Spec.Retry != nil {
				t.Errorf("I1: the branch of attempt %d of job %s was taken:\n%s", a.N, id, tell(r))
			}
		}
		if accepted > 1 {
			t.Errorf("I1: job %s has %d accepted attempts:\n%s", id, accepted, tell(r))
		}
	}
	// Each job with a workspace has one branch at most, and HEAD is where it was.
	out := sh("cd " + files + "/repo 2>/dev/null || exit 0; git for-each-ref --format='%(refname:short) %(objectname)' refs/heads; git rev-list --count main").out
	lines := strings.Fields(out)
	if len(lines) > 0 && lines[len(lines)-1] != "1" {
		t.Errorf("I4: something was merged: %s", out)
	}
	for _, m := range regexp.MustCompile(`(?m)^berth/\S*?([0-9a-f]{8}) ([0-9a-f]+)$`).FindAllStringSubmatch(out, -1) {
		r := recs[m[1]]
		if r == nil {
			t.Errorf("I1: a branch of a job that is not there: %s", m[0])
			continue
		}
		if e := r.Current().Exit; e == nil || e.Result == nil || e.Result.Commit != m[2] {
			t.Errorf("I1: the branch %s is not the accepted attempt's:\n%s", m[0], tell(r))
		}
	}
}

// kept is I2: what was acknowledged is found.
func kept(t *testing.T, recs map[string]*jobs.Record) {
	t.Helper()
	acked.Range(func(id, _ any) bool {
		if recs[id.(string)] == nil {
			t.Errorf("I2: job %s was acknowledged, and is not in the ledger", id)
		}
		return true
	})
}

// strangers is I3: the scheduler has no job of ours that is not in the ledger,
// and in the end none at all.
func strangers(t *testing.T, recs map[string]*jobs.Record) {
	t.Helper()
	known := map[string]bool{}
	for _, r := range recs {
		for i := range r.Attempts {
			info := r.Attempts[i].Info
			known[info.Name] = true
			known["berth-reap-"+info.ID], known["berth-next-"+info.ID] = true, true
		}
	}
	var left string
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		a := on("ctl", "root", "squeue -h -u alice -o '%i %T %j'")
		if a.code != 0 {
			left = a.err
		} else if left = a.out; left == "" {
			return
		}
		for line := range strings.Lines(a.out) {
			if f := strings.Fields(line); len(f) == 3 && strings.HasPrefix(f[2], "berth-") && !known[f[2]] {
				t.Errorf("I3: Slurm has a job that no record knows: %s", line)
				return
			}
		}
		operate("DOWN|DRAIN")
		if time.Now().After(deadline) {
			t.Errorf("I3: all jobs have ended, and Slurm has:\n%s", left)
			return
		}
	}
}

// overlays is I5: each persistent layer passes its check.
func overlays(t *testing.T) {
	t.Helper()
	a := sh(`for o in "$BERTH_HOME"/overlays/*/; do o=$(basename "$o"); case $o in '*' | foreign) continue ;; esac; berth overlay check "$o" || echo "$o: $?"; done 2>&1 >/dev/null; ls -A "$BERTH_HOME"/overlays 2>/dev/null | grep -E '^\.(gone|making)'`)
	if a.out != "" {
		t.Errorf("I5: %s %s", a.out, a.err)
	}
}

// scratches lists the scratch directories of a node; the images that a user's
// jobs share there stay.
const scratches = `ls -d /tmp/berth-1000-* /var/tmp/berth-1000-* /tmp/berth-1000-scratch/* 2>/dev/null | grep -vE -- '-(images|scratch)(-[0-9]+)?$|-foreign$'`

// quiet is I7: nothing of a job is left on any host: no process of berth's, of a
// container's or of a task's, no mount, no scratch directory.
func quiet(t *testing.T) {
	t.Helper()
	// What a runner that was killed has left is removed by the next one there.
	for _, n := range nodes {
		if on(n, "root", scratches).out != "" {
			id := submit(t, "--retry off --slurm --nodelist="+n, "true")
			ends(t, 2*time.Minute, id, jobs.StateCompleted)
		}
	}
	for _, h := range hosts {
		var left answer
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
			left = on(h, "root", `ps -u alice -o pid=,ppid=,etimes=,args= | grep -vE "sshd|bash -c|(ps|grep) -|sftp-server"
`+scratches+`
grep -E 'fuse\.(squashfuse|fuse-overlayfs|fuse2fs)|apptainer' /proc/mounts; true`)
			if left.out == "" && left.code == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("I7: left on %s:\n%s%s", h, left.out, left.err)
				break
			}
		}
	}
}

// before is what the file systems looked like when the lane began.
var before = map[string]string{}

// manifest lists what stands on a host outside of berth's directories.
func manifest(host string) string {
	dirs := "/etc /usr /opt /root /srv /home/alice /home/bob /tmp /var/tmp"
	if host == "ctl" || strictSite && host != "login" {
		dirs = "/etc /usr /opt /root /srv /tmp /var/tmp"
	}
	return on(host, "root", `find `+dirs+` -xdev \( -path `+files+` -o -path '/tmp/berth-1000*' -o -path '/var/tmp/berth-1000-*-images' -o -path '/var/tmp/berth-1000-scratch' -o -path /etc/resolv.conf -o -path /etc/mtab -o -path /home/alice/.cache -o -path /etc/slurm/slurm.conf -o -path '/tmp/.X*' \) -prune -o -not -type d -printf '%p %s %m %U %T@\n' 2>/dev/null | sort`).out
}

// remember makes a manifest of every host, and plants what is not berth's beside
// what is: I9.
func remember(t *testing.T) {
	t.Helper()
	for _, h := range nodes {
		ok(t, h, "alice", "mkdir -p /tmp/berth-1000-foreign && echo mine >/tmp/berth-1000-foreign/file")
	}
	ok(t, "login", "alice", "mkdir -p $BERTH_HOME/overlays/foreign && echo mine >$BERTH_HOME/overlays/foreign/file; echo mine >"+files+"/file")
	for _, h := range hosts {
		before[h] = manifest(h)
	}
}

// unchanged is I6 and I9: outside of its own directories berth has changed
// nothing, and it has removed nothing that it has not made.
func unchanged(t *testing.T) {
	t.Helper()
	for _, h := range slices.Sorted(maps.Keys(before)) {
		if now := manifest(h); now != before[h] {
			t.Errorf("I6: changed on %s:\n%s", h, difference(before[h], now))
		}
	}
	for _, h := range nodes {
		if on(h, "root", "cat /tmp/berth-1000-foreign/file").out != "mine" {
			t.Errorf("I9: what is not berth's is gone from %s", h)
		}
	}
	if a := sh("cat $BERTH_HOME/overlays/foreign/file " + files + "/file"); a.out != "mine\nmine" {
		t.Errorf("I9: what is not berth's is gone: %s", a.err)
	}
}

// difference is the lines that only one of two texts has.
func difference(was, is string) string {
	a, b := strings.Split(was, "\n"), strings.Split(is, "\n")
	var out []string
	for _, line := range a {
		if _, found := slices.BinarySearch(b, line); !found {
			out = append(out, "- "+line)
		}
	}
	for _, line := range b {
		if _, found := slices.BinarySearch(a, line); !found {
			out = append(out, "+ "+line)
		}
	}
	if len(out) > 40 {
		out = append(out[:40], fmt.Sprintf("and %d more", len(out)-40))
	}
	return strings.Join(out, "\n")
}

// silentAbout is I8: the canary, a value that every job is given, is nowhere but
// in the commands' environments while they run.
func silentAbout(t *testing.T) {
	t.Helper()
	for _, h := range hosts {
		a := on(h, "root", `cat /home/alice/.canary >/tmp/pattern
grep -rlaF -f /tmp/pattern `+state+` /var/spool/slurmctld /var/spool/slurmd /var/log/slurm /tmp /var/tmp /run/user `+files+` 2>/dev/null | grep -v '^/tmp/pattern$'
grep -laF -f /tmp/pattern /proc/[0-9]*/cmdline 2>/dev/null
scontrol show job 2>/dev/null | grep -F -f /tmp/pattern
cat /home/bob/seen-$(hostname) 2>/dev/null
rm -f /tmp/pattern`)
		if a.out != "" {
			t.Errorf("I8: the canary on %s: %s", h, a.out)
		}
	}
}
