//go:build faults

package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// deaf is a proxy in front of slurmctld: the first request to submit a batch job
// (REQUEST_SUBMIT_BATCH_JOB, 4003) is handed on, and its answer is dropped.
const deaf = `import socket, threading
s = socket.socket()
s.bind(('127.0.0.1', 0))
s.listen(64)
dropped = []
def serve(c):
    u = socket.create_connection(('ctl', 6817))
    data = b''
    while len(data) < 10: # it may come in pieces
        d = c.recv(65536)
        if not d:
            break
        data += d
    lost = data[8:10] == b'\x0f\xa3' and not dropped
    if lost:
        dropped.append(1)
    u.sendall(data)
    def up():
        while True:
            d = c.recv(65536)
            if not d:
                return
            u.sendall(d)
    threading.Thread(target=up, daemon=True).start()
    while True:
        d = u.recv(65536)
        if lost:
            print('dropped', flush=True)
            c.shutdown(socket.SHUT_RDWR)
        if lost or not d:
            break
        c.sendall(d)
    c.close()
    u.close()
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
`

// TestReplyLost, case 1: slurmctld takes a job, and its answer does not arrive.
// The attempt finds its Slurm job by its name, and there is one.
func TestReplyLost(t *testing.T) {
	begin(t)
	d := files + "/deaf"
	ok(t, "login", "alice", "mkdir -p "+d+"; cat >"+d+"/proxy.py <<'E'\n"+deaf+"E\ncd "+d+"; rm -f out; (setsid python3 proxy.py >out 2>err </dev/null & echo $! >pid); until [ -s out ]; do sleep 0.1; done; cp /etc/slurm/slurm.conf /etc/slurm/cgroup.conf /etc/slurm/gres.conf .; sed -i \"s/^SlurmctldHost=.*/SlurmctldHost=ctl(127.0.0.1)/; s/^ClusterName/SlurmctldPort=$(head -1 out)\\nClusterName/\" slurm.conf")
	t.Cleanup(func() { sh("kill $(cat " + d + "/pid); rm -rf " + d) })
	a := sh("export SLURM_CONF=" + d + "/slurm.conf; " + submitLine("--retry on --name "+mark("lost-reply"), "echo ready"))
	if a.code != 0 {
		t.Fatalf("%+v\nproxy: %s", a, sh("cat "+d+"/out "+d+"/err").out)
	}
	ack(t, a.out)
	if got := sh("cat " + d + "/out").out; !strings.Contains(got, "dropped") {
		t.Fatalf("no answer was dropped: %s", got)
	}
	sh("kill $(cat " + d + "/pid)")
	one(t, mark("lost-reply"))
	ends(t, 2*time.Minute, a.out, jobs.StateCompleted)
	invariants(t)
}

// one asserts that Slurm had one job of that name.
func one(t *testing.T, name string) {
	t.Helper()
	eventually(t, 2*time.Minute, "one Slurm job "+name, func() bool {
		return on("ctl", "root", "squeue -a -h -t all -o %j | grep -c '^berth-"+name+"-'").out == "1"
	})
}

// TestFrozenController, case 2: slurmctld is stopped while a job is submitted.
// No one knows then whether it was, and no one does it again.
func TestFrozenController(t *testing.T) {
	begin(t)
	t.Cleanup(func() { heal(t) })
	d := files + "/hasty"
	ok(t, "login", "alice", "mkdir -p "+d+"; cd "+d+"; cp /etc/slurm/slurm.conf /etc/slurm/cgroup.conf /etc/slurm/gres.conf .; echo MessageTimeout=2 >>slurm.conf")
	ok(t, "ctl", "root", "pkill -STOP -x slurmctld")
	a := sh("export SLURM_CONF=" + d + "/slurm.conf; " + submitLine("--retry on --name "+mark("frozen"), "echo ready"))
	ok(t, "ctl", "root", "pkill -CONT -x slurmctld")
	switch {
	case a.code == 5 && a.out != "": // it may or may not have been
		ack(t, a.out)
		if st := look(t, a.out); st.State == "lost" || st.State == "error" {
			t.Errorf("%+v", st)
		}
		// Its runner tells that it was.
		ends(t, 2*time.Minute, a.out, jobs.StateCompleted)
		one(t, mark("frozen"))
	case a.code == 5: // sbatch says that it reached no one
		if n := on("ctl", "root", "sacct -a -X -n -P -S now-1hour -o jobname | grep -c '^berth-"+mark("frozen")+"-'").out; n != "0" {
			t.Errorf("berth says that it was not submitted, and Slurm has %s: %s", n, a.err)
		}
	default:
		t.Errorf("%+v", a)
	}
	invariants(t)
}

// TestControllerKilled, case 3: slurmctld is killed and comes back, with a job
// that runs and one that waits; nothing is submitted again.
func TestControllerKilled(t *testing.T) {
	begin(t)
	notMissed(t)
	t.Cleanup(func() { heal(t) })
	runs := submit(t, "--retry on --name "+mark("ctl-runs")+" "+onlyOnce(t), gate("ctl"))
	waits := submit(t, "--retry on --name "+mark("ctl-waits")+" --slurm --begin=now+1hour", "echo ready")
	running(t, runs)
	saved(t, mark("ctl-waits"))
	ok(t, "ctl", "root", "tb-slurmctld kill")
	for _, id := range []string{runs, waits} {
		if st := look(t, id); st.Final {
			t.Errorf("while Slurm is down: %+v", st)
		}
	}
	ok(t, "ctl", "root", "tb-slurmctld start")
	open(t, "ctl")
	eventually(t, 3*time.Minute, "the job that waits may begin", func() bool {
		return on("ctl", "root", "j=$(squeue -h -o '%A %j' | awk '$2 ~ /^berth-"+mark("ctl-waits")+"-/ {print $1}'); [ -n \"$j\" ] && scontrol update JobId=$j StartTime=now").code == 0
	})
	for _, id := range []string{runs, waits} {
		if r := ends(t, 2*time.Minute, id, jobs.StateCompleted); len(r.Attempts) != 1 {
			t.Error(tell(r))
		}
	}
	one(t, mark("ctl-runs"))
	one(t, mark("ctl-waits"))
	invariants(t)
}

// saved has slurmctld write down what it knows, which takes it up to 5 s and more
// on a slow machine: what it has not when it is killed, it has never heard, as in
// [TestStateLost]. It writes only when it has heard something new, here about a
// job, and twice, because the first time it may have begun before.
func saved(t *testing.T, name string) {
	t.Helper()
	ok(t, "ctl", "root", `j=$(squeue -h -o '%A %j' | awk '$2 ~ /^berth-`+name+`-/ {print $1}')
for round in 1 2; do
	touch /run/before; sleep 0.1
	scontrol update JobId=$j AdminComment=$round || exit 1
	for i in $(seq 1800); do [ /var/spool/slurmctld/job_state -nt /run/before ] && continue 2; sleep 0.1; done
	exit 1
done`)
}

// TestAccountingKilled, case 26: without slurmdbd a job is submitted, runs and
// ends, and its own record tells how. Sites that have none at all are the strict
// site of test/cluster.
func TestAccountingKilled(t *testing.T) {
	begin(t)
	t.Cleanup(func() { heal(t) })
	ok(t, "ctl", "root", "tb-slurmdbd kill")
	good := submit(t, "--retry on", "echo ready; sleep 2")
	bad := submit(t, "--retry on", "echo ready; exit 3")
	ends(t, 2*time.Minute, good, jobs.StateCompleted)
	ends(t, 2*time.Minute, bad, jobs.StateFailed)
	killed := submit(t, "--retry on", "echo ready; sleep 318")
	st := running(t, killed)
	ok(t, st.Node, "root", "pkill -9 -u alice -f 'berth-node.* runner --attempt "+st.Dir+"'")
	again(t, killed)
	ok(t, "ctl", "root", "tb-slurmdbd start")
	ok(t, "login", "alice", "berth cancel "+killed)
	ends(t, 2*time.Minute, killed, jobs.StateCancelled)
	invariants(t)
}

// TestMungeDown, case 25: without munged nothing can be submitted or asked, and
// that is said; when it is back, all goes on. On a node it keeps no job from its
// end.
func TestMungeDown(t *testing.T) {
	begin(t)
	t.Cleanup(func() { heal(t) })
	id := submit(t, "--retry on --slurm --nodelist=c1 "+onlyOnce(t), gate("munge"))
	running(t, id)
	ok(t, "login", "root", "tb-munged kill")
	ok(t, "c1", "root", "tb-munged kill")
	count := "find $BERTH_HOME/jobs -mindepth 2 -maxdepth 2 | wc -l"
	was := sh(count).out
	a := sh(submitLine("--retry on --name "+mark("no-munge"), "true"))
	if a.code != 4 && a.code != 5 || a.out != "" || !strings.Contains(a.err, "hint: ") {
		t.Errorf("without munged: %+v", a)
	}
	if is := sh(count).out; is != was {
		t.Errorf("it left a record: %s, then %s", was, is)
	}
	if st := look(t, id); st.State == "lost" || st.State == "error" {
		t.Errorf("%+v", st)
	}
	// The record is enough.
	open(t, "munge")
	ends(t, 2*time.Minute, id, jobs.StateCompleted)
	heal(t)
	if n := on("ctl", "root", "sacct -a -X -n -P -S now-1hour -o jobname | grep -c '^berth-"+mark("no-munge")+"-'").out; n != "0" {
		t.Errorf("Slurm has %s jobs", n)
	}
	invariants(t)
}

// TestStateLost, cases 4 and 28: slurmctld comes back without its state, and
// gives the numbers of our jobs to others. They are not taken for a stranger's,
// and are tried again when nothing of their first attempts goes on.
func TestStateLost(t *testing.T) {
	begin(t)
	t.Cleanup(func() { heal(t) })
	id := submit(t, "--retry on --name state-lost "+onlyOnce(t), "echo ready; if [ -e /once/state ]; then echo second; else touch /once/state; sleep 326; fi")
	waits := submit(t, "--retry on --slurm --begin=now+1hour", "echo ready")
	st := running(t, id)
	ok(t, "ctl", "root", "tb-slurmctld kill; rm -f /var/spool/slurmctld/job_state*; cp /etc/slurm/slurm.conf /run/slurm.conf.was; echo FirstJobId="+st.NativeID+" >>/etc/slurm/slurm.conf; /usr/sbin/slurmctld -c </dev/null")
	t.Cleanup(func() {
		ok(t, "ctl", "root", "cat /run/slurm.conf.was >/etc/slurm/slurm.conf; rm /run/slurm.conf.was; scontrol reconfigure; true")
	})
	heal(t)
	for _, n := range nodes { // else its number is not free there
		eventually(t, 3*time.Minute, "slurmctld has ended what it does not know", func() bool { return on(n, "root", "pgrep -f '^slurmstepd: '").code == 1 })
	}
	// slurmd has revoked the number's credential in this second at the latest, and
	// takes the next one for it only when that is of a later second; else slurmctld
	// ends the job at once ("Killing non-startable batch", FAILED, 1:0).
	time.Sleep(1100 * time.Millisecond)
	other := on("login", "bob", "cd /tmp; sbatch --parsable --time=60 --output=/dev/null --wrap 'sleep 3000'").out
	if other != st.NativeID {
		t.Logf("the stranger's job is %s, and ours was %s", other, st.NativeID)
	}
	// No job of Slurm's is left that could look, so someone does.
	eventually(t, patience, "both jobs have a second attempt when somebody looks", func() bool {
		look(t, id)
		look(t, waits)
		recs := ledger(t, id, waits)
		return begunAgain(recs[id]) && begunAgain(recs[waits])
	})
	twoAttempts(t, ends(t, 2*time.Minute, id, jobs.StateCompleted), jobs.ClassNode, jobs.ClassInfra)
	ok(t, "login", "alice", "berth cancel "+waits)
	ends(t, 2*time.Minute, waits, jobs.StateCancelled)
	// slurmctld may have drained the node, or held the job, for the one that had
	// its number before.
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(on("ctl", "root", "scontrol show job "+other+"; sinfo -R; sacct -D -X -j "+other+" -o jobid,user,state,start,end,exitcode").out)
		}
	})
	eventually(t, 2*time.Minute, "the stranger's job runs", func() bool {
		operate("DRAIN")
		return on("ctl", "root", "squeue -h -o '%i %u %T' -j "+other).out == fmt.Sprintf("%s bob RUNNING", other)
	})
	on("ctl", "root", "scancel "+other)
	invariants(t)
}
