//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

// A container from which a socket of the host can be reached is not used: of
// jobs, of ranks and of environments.
func TestNeighboursSockets(t *testing.T) {
	s := standard
	s.need(t)
	for _, c := range []struct{ flags, says string }{
		{"--bind /run/munge", "munge, /run/munge/munge.socket.2"},
		{"--bind /run:/host/run", "munge, /host/run/munge/munge.socket.2"},
		{"--ntasks 2 --bind /run/munge:/m", "munge, /m/munge.socket.2"},
		{"--bind /var/spool:/spool", "Slurm, /spool/slurmd/"},
	} {
		st := s.wait(t, s.submit(t, c.flags, "echo never"), jobs.CodeConfig)
		if st.Exit.Started || !strings.Contains(st.Reason, "can reach the socket of "+c.says) || !strings.Contains(st.Hint, "mount") {
			t.Errorf("%s: %q, hint %q", c.flags, st.Reason, st.Hint)
		}
	}
	a := s.sh(t, "cd "+s.dir(t)+" && berth exec --env neighbours --image "+s.image+" --bind /run/munge -- true")
	if a.code != 125 || !strings.Contains(a.err, "can reach the socket of munge") || !strings.Contains(a.err, "hint: it came in with the mount /run/munge") {
		t.Errorf("an environment: %+v", a)
	}
	s.sh(t, "berth env rm --force neighbours") // it has never been

	// Of alice's own, without a path: no mount has to bring it in.
	name := s.ok(t, "echo berth-test/ssh-$RANDOM$RANDOM")
	id := s.submit(t, "--slurm --nodelist=c1 --slurm --begin=now+1hour", "echo never")
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.on(t, "c1", "alice", "timeout", "900", "socat", "ABSTRACT-LISTEN:"+name+",fork", "EXEC:true")
	}()
	t.Cleanup(func() {
		s.on(t, "c1", "alice", "pkill", "-f", "ABSTRACT-LISTEN:"+name)
		<-over
	})
	waitFor(t, patience, func() bool { return s.on(t, "c1", "alice", "grep", "-q", name, "/proc/net/unix").code == 0 })
	s.release(t, id)
	if st := s.wait(t, id, jobs.CodeConfig); !strings.Contains(st.Reason, "an SSH agent, @"+name) || !strings.Contains(st.Hint, "--network none") {
		t.Errorf("an abstract socket: %q, hint %q", st.Reason, st.Hint)
	}
}

// The state directory, keepers' sockets and unpacked images are in no container,
// although a directory above them is bound; they cannot be bound themselves.
func TestNeighboursHidden(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config; cd " + d + "\n"
	t.Cleanup(func() { s.sh(t, env+"berth env rm --all --force >/dev/null 2>&1") })
	s.ok(t, env+"echo hello >seen; berth exec --backend local -- true") // a keeper, on login
	look := "'ls -A /x/state; cat /x/seen; touch /x/state/y 2>/dev/null && echo WRITTEN; ls -A /hosttmp/berth-1000 /hosttmp/berth-1000-images; umount /x/state 2>/dev/null && echo UNMOUNTED; true'"
	flags := "--image " + s.image + " --bind " + d + ":/x:rw --bind /tmp:/hosttmp:rw"
	a := s.want(t, env+"berth run "+flags+" --slurm --nodelist=c1 -- "+look, 0)
	b := s.want(t, env+"berth exec --env hidden "+flags+" -- "+look, 0)
	for what, out := range map[string]string{"job": a.out, "environment": b.out} {
		var kept []string
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "/hosttmp/") {
				kept = append(kept, line)
			}
		}
		if len(kept) != 1 || kept[0] != "hello" {
			t.Errorf("%s: it sees %q", what, out)
		}
	}
	for _, source := range []string{d + "/state", d + "/state/jobs", "/tmp/berth-1000"} {
		s.want(t, env+"berth exec --env refused --image "+s.image+" --bind "+source+":/y -- true", 125, "cannot be mounted at /y: it belongs to berth's own directory")
		s.sh(t, env+"berth env rm --force refused")
	}
	s.quiet(t)
}

// What a job that begins later has on the node is not seen by one that was there.
func TestNeighboursLater(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	first := s.submit(t, "--slurm --nodelist=c1 --bind /tmp:/hosttmp:rw --bind "+d+":/x",
		"echo ready; until [ -e /x/go ]; do sleep 0.1; done; ls -A /hosttmp/berth-1000-scratch; ls -d /hosttmp/berth-1000-*/w /hosttmp/berth-1000-scratch/*/w 2>/dev/null; echo looked")
	ready := func(id string) {
		waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "ready") })
	}
	ready(first)
	second := s.submit(t, "--slurm --nodelist=c1", "echo ready; sleep 315")
	ready(second)
	if a := s.on(t, "c1", "root", "bash", "-c", "ls -d /tmp/berth-1000-scratch/*/w"); a.code != 0 {
		t.Errorf("there is nothing to be seen: %+v", a)
	}
	s.ok(t, "touch "+d+"/go")
	s.wait(t, first, 0)
	if out := s.ok(t, "berth logs "+first); out != "ready\nlooked" {
		t.Errorf("it sees %q", out)
	}
	s.ok(t, "berth cancel "+second)
	s.wait(t, second, jobs.CodeInterrupted)
}

// A stranger's listener stops no one.
func TestNeighboursStranger(t *testing.T) {
	s := standard
	s.need(t)
	name := s.ok(t, "echo slurm-munge-$RANDOM$RANDOM")
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.on(t, "c1", "bob", "timeout", "900", "socat", "ABSTRACT-LISTEN:"+name+",fork", "EXEC:true")
	}()
	t.Cleanup(func() {
		s.on(t, "c1", "bob", "pkill", "-f", "ABSTRACT-LISTEN:"+name)
		<-over
	})
	waitFor(t, patience, func() bool { return s.on(t, "c1", "bob", "grep", "-q", name, "/proc/net/unix").code == 0 })
	id := s.submit(t, "--slurm --nodelist=c1", "echo ran")
	s.wait(t, id, 0)
	if got := s.ok(t, "berth explain --json "+id+" | grep -c "+name); got == "0" {
		t.Error("the record does not name it")
	}
}

// What a job's container is like, seen from inside and told by its receipt.
func TestNeighboursReceipt(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	id := s.submit(t, "--memory 100 --cpus 1 --time 10m --bind "+d, `ls -l /proc/self/fd | grep -c -- '->'; ulimit -c; umask; munge -n; sbatch --version; ls /run/munge /var/spool/slurmd; true`)
	s.wait(t, id, 0)
	out := strings.Fields(s.ok(t, "berth logs --stdout "+id))
	if len(out) != 3 || out[0] != "4" || out[1] != "0" || out[2] != "0022" { // 0, 1, 2 and that of ls
		t.Errorf("descriptors, core limit and umask: %q", out)
	}
	var got struct {
		Explain struct{ Receipt *jobs.Receipt }
	}
	if err := json.Unmarshal([]byte(s.ok(t, "berth explain --json "+id)), &got); err != nil {
		t.Fatal(err)
	}
	r := got.Explain.Receipt
	if r == nil || r.Level != jobs.LevelFS || r.Asked != jobs.LevelFS || r.Seen == nil || !r.Seen.NoNewPrivs || strings.Trim(r.Seen.Capabilities, "0") != "" || len(r.Seen.Sockets) > 0 || len(r.Seen.Looked) < 8 {
		t.Fatalf("%+v", r)
	}
	if r.Versions["apptainer"] == "" || !strings.HasPrefix(r.Versions["slurm"], s.version) || !strings.HasPrefix(r.Versions["berth"], "berth-node-") || r.Kernel == "" || r.Image.Sum == "" || r.Image.Used == nil || r.Overlay == nil {
		t.Errorf("%+v", r)
	}
	if len(r.Mounts) != 1 || r.Mounts[0].Source != d || !strings.Contains(strings.Join(r.Argv, " "), "--containall --no-home --cleanenv") {
		t.Errorf("argv %q, mounts %v", r.Argv, r.Mounts)
	}
	held := map[string]string{}
	for _, l := range r.Limits {
		held[l.Name] = l.Value + " by " + l.By
	}
	if !strings.HasPrefix(held["memory"], "100MiB by ") || held["cpus"] != "1 by slurm" || !strings.HasPrefix(held["time"], "10m0s by ") {
		t.Errorf("%v", held)
	}
}

// hostile are variables by which whoever calls berth could change what Slurm's
// programs and the container program do or print.
const hostile = `export SBATCH_PARTITION=nowhere SBATCH_ACCOUNT=nobody SBATCH_WRAP='touch ~/wrapped' SBATCH_JOB_NAME=other SBATCH_TIMELIMIT=1 SBATCH_EXPORT=ALL SBATCH_REQUEUE=1 SBATCH_IGNORE_PBS=1 SBATCH_TEST_ONLY=1
export SLURM_TIME_FORMAT='%A' SLURM_JOB_ID=99999999 SLURM_JOBID=99999999 SLURM_RESTART_COUNT=7 SLURM_EXIT_ERROR=0 SLURM_HINT=nonsense SLURM_EXPORT_ENV=NONE
export SQUEUE_FORMAT='%i' SQUEUE_FORMAT2=jobid SQUEUE_STATES=CA SQUEUE_USERS=bob SQUEUE_PARTITION=nowhere SQUEUE_NAMES=none SACCT_FORMAT=User SCANCEL_USER=bob SCANCEL_STATE=PENDING SCANCEL_INTERACTIVE=1 SCANCEL_VERBOSE=1 SCANCEL_NAME=none SINFO_FORMAT=%n SCONTROL_ALL=1
export SRUN_PARTITION=nowhere SALLOC_PARTITION=nowhere SRUN_CPUS_PER_TASK=99 SLURM_STDOUTMODE=none SLURM_CPU_BIND=nonsense SLURM_NTASKS=64 SLURM_MPI_TYPE=none SLURM_TASK_PROLOG=/bin/false SLURM_WORKING_DIR=/nowhere
export APPTAINER_BIND=/etc/slurm:/leak SINGULARITY_BIND=/etc/slurm:/leak2 APPTAINER_BINDPATH=/run/munge SINGULARITY_BINDPATH=/run/munge APPTAINER_WRITABLE=1 APPTAINER_WRITABLE_TMPFS=1 APPTAINER_NV=1 APPTAINER_CONTAINALL=0 APPTAINER_SHELL=/bin/false APPTAINER_OVERLAY=/nowhere APPTAINER_NO_MOUNT=tmp APPTAINERENV_LEAK=leaked SINGULARITYENV_LEAK=leaked APPTAINER_CONFIGDIR=/nowhere APPTAINER_TMPDIR=/nowhere APPTAINER_FAKEROOT=1 APPTAINER_PWD=/nowhere
`

// Nothing that berth does changes by them.
func TestNeighboursEnvironment(t *testing.T) {
	s := standard
	s.need(t)
	look := quote(`env | grep -E "LEAK|SBATCH|SQUEUE|SRUN_|TASK_PROLOG" ; ls -d /leak /leak2 /run/munge 2>/dev/null; echo "${SLURM_JOB_ID:-none} ${SLURM_RESTART_COUNT:-0}"; pwd`)
	id := s.ok(t, hostile+"berth submit --image "+s.image+" -- "+look)
	a := s.sh(t, hostile+"berth wait "+id)
	st := s.status(t, id)
	if out := s.ok(t, hostile+"berth logs "+id); a.code != 0 || out != st.NativeID+" 0\n/home/alice" {
		t.Errorf("exit %d, %q, %s\n%+v", a.code, out, a.err, st)
	}
	ranks := s.ok(t, hostile+"berth submit --ntasks 2 --image "+s.image+" -- 'echo rank $SLURM_PROCID of $SLURM_NTASKS'")
	a = s.sh(t, hostile+"berth wait "+ranks)
	if out := s.ok(t, "berth logs "+ranks+" | sort"); a.code != 0 || !strings.Contains(out, "rank 0 of 2") || !strings.Contains(out, "rank 1 of 2") {
		t.Errorf("ranks: exit %d, %q, %s", a.code, out, a.err)
	}
	long := s.ok(t, hostile+"berth submit --image "+s.image+" -- 'echo ready; sleep 310'")
	waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, hostile+"berth ps").out, long+"\trunning") })
	s.ok(t, hostile+"berth cancel "+long)
	if a := s.sh(t, hostile+"berth wait "+long); a.code != jobs.CodeInterrupted {
		t.Errorf("cancelled: %+v", a)
	}
	d := s.dir(t)
	a = s.sh(t, hostile+"cd "+d+"; berth exec --env hostile --image "+s.image+" -- "+look+"; berth env rm --force hostile")
	if strings.TrimSpace(a.out) != "none 0\n/home/alice" && strings.TrimSpace(a.out) != "99999999 7\n/home/alice" {
		t.Errorf("an environment: %+v", a)
	}
	if a := s.sh(t, "ls ~/wrapped"); a.code == 0 {
		t.Error("SBATCH_WRAP was heeded")
	}
	s.quiet(t)
}

// watcher is another user who looks for a secret wherever that user may look, on
// every host, until it is told to stop. The secret stands in no command line of
// the test's own.
type watcher struct {
	s    site
	t    *testing.T
	over chan string
}

const watched = 3 // hosts

func (s site) watch(t *testing.T, stop string) *watcher {
	w := &watcher{s, t, make(chan string, watched)}
	for _, host := range []string{"login", "c1", "c2"} {
		go func() {
			a := s.on(t, host, "bob", "bash", "-c", `for i in $(seq 1500); do [ -e `+stop+` ] && break
				grep -alFf ~/canary /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null
				[ $((i % 8)) = 0 ] && grep -arlFf ~/canary /tmp /var/tmp /dev/shm 2>/dev/null
				sleep 0.1; done`)
			w.over <- strings.TrimSpace(a.out)
		}()
	}
	return w
}

func (w *watcher) end(stop string) {
	w.s.ok(w.t, "touch "+stop)
	for range watched {
		if seen := <-w.over; seen != "" {
			w.t.Errorf("another user has seen the secret in\n%s", seen)
		}
	}
}

// A value that is passed by name is seen by no one else, on no host, and is kept
// nowhere.
func TestNeighboursCanary(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "(umask 077; head -c 18 /dev/urandom | base64 | tr -d '/+=\\n' >"+d+"/canary)")
	// Hosts have homes of their own, or share them.
	for _, host := range []string{"login", "c1", "c2"} {
		s.on(t, host, "root", "install", "-m", "600", "-o", "bob", d+"/canary", "/home/bob/canary")
		t.Cleanup(func() { s.on(t, host, "root", "rm", "-f", "/home/bob/canary") })
	}
	// The watch does see what can be seen.
	shown := make(chan answer)
	go func() { shown <- s.sh(t, "exec -a $(cat "+d+"/canary) sleep 120") }()
	waitFor(t, patience, func() bool {
		return s.on(t, "login", "bob", "bash", "-c", "grep -alFf ~/canary /proc/[0-9]*/cmdline 2>/dev/null").out != ""
	})
	s.on(t, "login", "alice", "bash", "-c", "kill $(grep -alFf "+d+"/canary /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3)")
	<-shown
	stop := "/mnt/share/" + s.ok(t, "basename "+d) + ".stop"
	t.Cleanup(func() { s.ok(t, "rm -f "+stop) })
	w := s.watch(t, stop)
	with := "cd " + d + "; export TOKEN=$(cat canary); "
	const say = `'echo ${#TOKEN}; sleep 0.5'`
	var ids []string
	for _, flags := range []string{"", "--ntasks 2", "--retry on", "--scheduler local", "--retry on --memory 60"} {
		command := say
		if strings.Contains(flags, "60") { // killed for memory, and tried again
			command = `'set -o pipefail; echo ${#TOKEN}; head -c 90M /dev/zero | tail >/dev/null'`
		}
		ids = append(ids, s.ok(t, with+"berth submit --env TOKEN --image "+s.image+" "+flags+" -- "+command))
	}
	never := s.ok(t, with+"berth submit --env TOKEN --slurm --begin=now+1hour --image "+s.image+" -- true")
	native := s.status(t, never).NativeID
	if a := s.sh(t, with+"berth exec --env canary --forward TOKEN --image "+s.image+" -- "+say+" && berth exec --env canary --var TOKEN -- "+say); a.code != 0 || len(strings.Fields(a.out)) != 2 {
		t.Errorf("an environment: %+v", a)
	}
	// As whoever may see most: what Slurm keeps.
	kept := `f=` + d + `/canary; for id in ` + native + `; do scontrol show job -dd $id; scontrol write batch_script $id -; sacct -j $id -P --format=ALL; sacct -j $id --batch-script; sacct -j $id --env-vars; done 2>/dev/null | grep -acFf $f`
	for _, id := range ids {
		if a := s.sh(t, "berth wait "+id); a.code != 0 {
			t.Errorf("%s: %+v", id, a)
		}
		if st := s.status(t, id); st.NativeID != "1" {
			kept = strings.Replace(kept, native, native+" "+st.NativeID, 1)
		}
		if out := s.ok(t, "berth logs --stdout "+id); !strings.HasPrefix(out, "24") && !strings.HasPrefix(out, "2") {
			t.Errorf("%s has seen %q", id, out)
		}
	}
	if a := s.on(t, "login", "root", "bash", "-c", kept); strings.TrimSpace(a.out) != "0" {
		t.Errorf("Slurm has the secret: %+v", a)
	}
	s.ok(t, "berth cancel "+never)
	s.sh(t, "berth wait "+never)
	s.ok(t, "berth env rm --force canary")
	w.end(stop)
	all := strings.Join(append(ids, never), " ")
	if a := s.sh(t, "for v in 'status --json' 'explain --json' logs; do for id in "+all+"; do berth $v $id; done; done 2>&1 | grep -acFf "+d+"/canary"); strings.TrimSpace(a.out) != "0" {
		t.Errorf("it is shown: %+v", a)
	}
	// After the end it is nowhere, for root neither.
	s.quiet(t)
	s.bare(t, "login", `pgrep -u alice -af "berth|apptainer|fuse"`)
	for _, host := range []string{"login", "c1", "c2"} {
		a := s.on(t, host, "root", "bash", "-c", fmt.Sprintf(`grep -arlFf %s/canary /home/alice /home/bob /tmp /var/tmp /dev/shm /run /var/log /var/spool /mnt/share 2>/dev/null | grep -vxe %s/canary -e /home/bob/canary
			grep -alFf %s/canary /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null`, d, d, d))
		if a.out != "" {
			t.Errorf("left on %s:\n%s", host, a.out)
		}
	}
}

// A directory of the name that is to be expected, and links of it, wait for a
// job: none is used.
func TestNeighboursScratch(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "--slurm --nodelist=c1 --slurm --begin=now+1hour", "echo x >/tmp/file; echo done")
	st := s.status(t, id)
	tail := s.ok(t, `sed -n 's/.*"name": ".*-\([0-9a-f]*\)".*/\1/p' `+st.Dir+"/attempt.json")
	name := "/tmp/berth-1000-" + tail
	if a := s.on(t, "c1", "bob", "bash", "-c", "mkdir -m 777 /tmp/victim && ln -s /tmp/victim "+name+" && mkdir -m 777 /tmp/victim/w /tmp/victim/overlay"); a.code != 0 {
		t.Fatal(a.err)
	}
	t.Cleanup(func() { s.on(t, "c1", "bob", "rm", "-rf", name, "/tmp/victim") })
	s.release(t, id)
	s.wait(t, id, 0)
	if a := s.on(t, "c1", "bob", "bash", "-c", "find /tmp/victim -mindepth 1 | sort | tr '\\n' ' '; readlink "+name); a.out != "/tmp/victim/overlay /tmp/victim/w /tmp/victim\n" {
		t.Errorf("the planted place was used: %q", a.out)
	}
	if argv := s.ok(t, "cat "+st.Dir+"/argv.json"); !strings.Contains(argv, filepath.Base(name)+"-") {
		t.Errorf("the scratch directory is not one of its own: %s", argv)
	}
}
