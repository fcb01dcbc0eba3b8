//go:build faults

package faults

import (
	"testing"
	"time"

	"berth/jobs"
)

// twoAttempts asserts that a job was tried again for a reason of one of these
// classes, and that the second attempt counts.
func twoAttempts(t *testing.T, r *jobs.Record, classes ...jobs.Class) {
	t.Helper()
	if len(r.Attempts) != 2 {
		t.Errorf("%d attempts:\n%s", len(r.Attempts), tell(r))
		return
	}
	d := r.Attempts[0].Decision
	for _, c := range classes {
		if d != nil && d.Verb == jobs.VerbRetry && d.Class == c {
			return
		}
	}
	t.Errorf("want a retry for %v:\n%s", classes, tell(r))
}

// onlyOnce makes the directory that such a command needs, and its flag.
func onlyOnce(t *testing.T) string {
	t.Helper()
	ok(t, "login", "alice", "mkdir -p "+files+"/once")
	return "--bind " + files + "/once:/once:rw "
}

// begins starts a job on a node that it does not ask for, so that it may go on
// elsewhere.
func begins(t *testing.T, node, flags, command string) string {
	t.Helper()
	other := map[string]string{"c1": "c2", "c2": "c1"}[node]
	ok(t, "ctl", "root", "scontrol update NodeName="+other+" State=DRAIN Reason=elsewhere")
	defer on("ctl", "root", "for i in $(seq 60); do scontrol update NodeName="+other+" State=RESUME && exit 0; sleep 1; done; exit 1")
	id := submit(t, flags, command)
	if st := running(t, id); st.Node != node {
		t.Fatalf("it runs on %s: %+v", st.Node, st)
	}
	return id
}

// TestNodeLost, case 6: a node is frozen with the job on it. Slurm gives the job
// up and starts it elsewhere; then the node is back, the old job alive. Its
// result counts for nothing.
func TestNodeLost(t *testing.T) {
	begin(t)
	t.Cleanup(func() { heal(t) })
	id := begins(t, "c1", "--retry on "+onlyOnce(t), "echo ready; if [ -e /once/lost ]; then echo second; else touch /once/lost; sleep 3270; echo first; fi")
	docker(t, "pause", container("c1"))
	r := ends(t, 4*time.Minute, id, jobs.StateCompleted)
	twoAttempts(t, r, jobs.ClassNode, jobs.ClassPreempted, jobs.ClassInfra)
	docker(t, "unpause", container("c1"))
	heal(t)
	recs := invariants(t)
	// What it did is kept aside.
	if e := recs[id].Attempts[0].Exit; e != nil && e.State == jobs.StateCompleted {
		t.Errorf("the old job's result:\n%s", tell(recs[id]))
	}
	if out := sh("berth logs " + id).out; out != "ready\nsecond" {
		t.Errorf("the output: %q", out)
	}
}

// TestNodeCut, case 6 by another way: the node is cut off from Slurm and not
// from the files, and goes on running what Slurm has begun elsewhere.
func TestNodeCut(t *testing.T) {
	begin(t)
	t.Cleanup(func() { heal(t) })
	id := begins(t, "c1", "--retry on "+onlyOnce(t), "echo ready; if [ -e /once/cut ]; then echo second; else touch /once/cut; sleep 320; fi")
	if a := cut("c1"); a.code != 0 {
		t.Fatal(a.err)
	}
	twoAttempts(t, ends(t, 4*time.Minute, id, jobs.StateCompleted), jobs.ClassNode, jobs.ClassPreempted, jobs.ClassInfra)
	// Cut off as it is, it has ended its container.
	eventually(t, 3*time.Minute, "the container on c1 is gone", func() bool { return on("c1", "root", "pgrep -f 'sleep 320'").code != 0 })
	join("c1")
	heal(t)
	invariants(t)
}

// TestSlurmdKilled, case 5: slurmd is killed, and its jobs go on; when it is back
// before Slurm has missed it, nothing has happened.
func TestSlurmdKilled(t *testing.T) {
	begin(t)
	notMissed(t)
	t.Cleanup(func() { heal(t) })
	id := submit(t, "--retry on "+onlyOnce(t), gate("slurmd-back"))
	st := running(t, id)
	ok(t, st.Node, "root", "tb-slurmd kill")
	time.Sleep(time.Second)
	ok(t, st.Node, "root", "tb-slurmd start")
	open(t, "slurmd-back")
	if r := ends(t, 2*time.Minute, id, jobs.StateCompleted); len(r.Attempts) != 1 {
		t.Error(tell(r))
	}
	invariants(t)
}

// TestSlurmdLost, case 5: it does not come back, so Slurm gives the node up. The
// attempt that goes on there is fenced, and the job goes on elsewhere.
func TestSlurmdLost(t *testing.T) {
	begin(t)
	t.Cleanup(func() { heal(t) })
	id := begins(t, "c2", "--retry on "+onlyOnce(t), "echo ready; if [ -e /once/slurmd ]; then echo second; else touch /once/slurmd; sleep 321; fi")
	ok(t, "c2", "root", "tb-slurmd kill")
	twoAttempts(t, ends(t, 4*time.Minute, id, jobs.StateCompleted), jobs.ClassNode, jobs.ClassPreempted, jobs.ClassInfra)
	heal(t)
	invariants(t)
}

// TestSlurmstepdKilled, case 5: what has started the runner is killed; the
// runner goes on, or it ends with its container: in no case are there two.
func TestSlurmstepdKilled(t *testing.T) {
	begin(t)
	t.Cleanup(func() { heal(t) })
	id := submit(t, "--retry on "+onlyOnce(t), "echo ready; if [ -e /once/stepd ]; then echo second; else touch /once/stepd; sleep 322; fi")
	st := running(t, id)
	ok(t, st.Node, "root", "pkill -9 -f 'slurmstepd: .*"+st.NativeID+"'")
	twoAttempts(t, ends(t, 4*time.Minute, id, jobs.StateCompleted), jobs.ClassNode, jobs.ClassPreempted, jobs.ClassInfra)
	invariants(t)
}

// TestPreempted, case 8: a job has to make room, by being started again and by
// being cancelled. Both times it is tried again, and that costs nothing.
// No node is to be given up meanwhile: a job that was on it would wait until
// Slurm's credential for it has expired.
func TestPreempted(t *testing.T) {
	begin(t)
	notMissed(t)
	for _, mode := range []string{"REQUEUE", "CANCEL"} {
		t.Run(mode, func(t *testing.T) {
			ok(t, "ctl", "root", "sed -i 's/^PartitionName=main .*/& PreemptMode="+mode+"/' /etc/slurm/slurm.conf; scontrol reconfigure")
			t.Cleanup(func() {
				ok(t, "ctl", "root", "sed -i 's/ PreemptMode="+mode+"$//' /etc/slurm/slurm.conf; scontrol reconfigure")
			})
			heal(t) // both nodes have their new configuration
			flag := "/once/" + mode
			id := submit(t, "--retry on --slurm --nodelist=c1 --slurm --exclusive "+onlyOnce(t), "echo ready; if [ -e "+flag+" ]; then echo second; else touch "+flag+"; sleep 323; fi")
			running(t, id)
			ok(t, "login", "bob", "cd /tmp; sbatch --partition=urgent --nodelist=c1 --exclusive --output=/dev/null --wrap 'sleep 3'")
			// Only Slurm's word tells why one was cancelled; the reaper asks for it.
			twoAttempts(t, ends(t, 4*time.Minute, id, jobs.StateCompleted), jobs.ClassPreempted)
		})
	}
	invariants(t)
}

// TestRealTimes plays a fence with the times that jobs have by themselves: the
// runner of a job that holds an overlay is stopped. Its container ends by itself
// after 120 s, and whoever waits for the overlay gets it after 180 s.
func TestRealTimes(t *testing.T) {
	begin(t)
	ok(t, "login", "alice", "berth overlay create --driver ext3 --size 64MiB --image "+image+" slow")
	holder := submit(t, "--profile real --retry off --overlay slow --slurm --nodelist=c1", "echo ready; sleep 324")
	st := running(t, holder)
	waiter := submit(t, "--profile real --overlay slow --overlay-wait 10m --slurm --nodelist=c2", "echo taken")
	stopped := time.Now()
	ok(t, "c1", "root", "pkill -STOP -u alice -f 'berth-node.* runner --attempt "+st.Dir+"'")
	eventually(t, 3*time.Minute, "the container leaves its runner", func() bool { return on("c1", "root", "pgrep -f 'sleep 324'").code != 0 })
	if left := time.Since(stopped); left < 100*time.Second {
		t.Errorf("the container ended after %s", left)
	}
	ends(t, 6*time.Minute, waiter, jobs.StateCompleted)
	if took := time.Since(stopped); took < 170*time.Second {
		t.Errorf("taken over after %s", took)
	}
	ok(t, "c1", "root", "pkill -CONT -u alice -f 'berth-node.* runner --attempt "+st.Dir+"'")
	ends(t, 2*time.Minute, holder, jobs.StateError)
	invariants(t)
}
