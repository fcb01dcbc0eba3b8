//go:build cluster

package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// What is killed in a round. All but the node are processes of one job.
const (
	theContainer = "appinit"                     // the init of the container's PID namespace
	theParent    = "Apptainer runtime parent"    // what would unmount it
	theFuse2fs   = "/usr/bin/fuse2fs"            // of an image's file system
	theFuse      = "/usr/bin/fuse-overlayfs"     // of the overlay
	theRunner    = "berth-node-[0-9a-f]* runner" // berth's own
	theNode      = "the node"
)

// lane is one overlay, on which one job after the other is killed.
type lane struct {
	s            site
	driver, want string // want is --overlay-snapshot
	node, name   string
	profile      string
	rand         *rand.Rand
	victims      []string
	gen, rounds  int
	killed       []string // ids of jobs
}

// Thirty jobs with overlays are killed in the middle of their writing: every
// process that they consist of, and both nodes. An overlay that jobs change by a
// snapshot is then as the last job left it that has succeeded; one that they
// change in place can be mounted, read and written, and passes its check. Nothing
// is left of the killed.
func TestOverlayFaults(t *testing.T) {
	s := standard
	s.need(t)
	crowd.Lock()
	t.Cleanup(crowd.Unlock)
	seed := uint64(time.Now().UnixNano())
	if v, err := strconv.ParseUint(os.Getenv("BERTH_TEST_SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("seed: BERTH_TEST_SEED=%d", seed)
	source := rand.New(rand.NewPCG(seed, 0))
	var lanes []*lane
	for i, driver := range []string{"kernel", "fuse", "ext3"} {
		victims := []string{theContainer, theRunner, theParent}
		if driver != "kernel" {
			victims = []string{theContainer, theRunner, theFuse}
		}
		for j, want := range []string{"always", "never"} {
			l := &lane{s: s, driver: driver, want: want, node: []string{"c1", "c2"}[(i+j)%2], rand: rand.New(rand.NewPCG(seed, source.Uint64())),
				name: fmt.Sprintf("fault-%s-%s-%d", driver, want, seed%1_000_000)}
			fourth := victims[source.IntN(len(victims))]
			if driver == "ext3" {
				fourth = theFuse2fs
			}
			l.victims = append(l.victims, append(victims, fourth)...)
			source.Shuffle(len(l.victims), func(a, b int) { l.victims[a], l.victims[b] = l.victims[b], l.victims[a] })
			lanes = append(lanes, l)
		}
	}
	all := func(do func(t *testing.T, l *lane)) {
		t.Helper()
		failed := false
		var wg sync.WaitGroup
		var mu sync.Mutex
		for _, l := range lanes {
			wg.Go(func() {
				ok := t.Run(l.driver+"-"+l.want, func(t *testing.T) { do(t, l) })
				mu.Lock()
				defer mu.Unlock()
				failed = failed || !ok
			})
		}
		wg.Wait()
		if failed {
			t.FailNow()
		}
	}
	t.Cleanup(func() {
		for _, l := range lanes {
			if t.Failed() && len(l.killed) > 0 {
				s.sh(t, "berth cancel "+strings.Join(l.killed, " "))
			}
			s.sh(t, "berth overlay rm --wait=30s "+l.name)
		}
	})
	// After 54 s without a sign of life an owner is taken for gone: that of a node
	// which is back, but has forgotten all.
	profile := s.dir(t) + "/beat.toml"
	s.ok(t, "echo 'beat = \"3s\"' >"+profile)
	all(func(t *testing.T, l *lane) {
		l.profile = profile
		size := ""
		if l.driver == "ext3" {
			size = "--size 200MiB"
		}
		s.ok(t, fmt.Sprintf("berth overlay create --driver %s %s --image %s %s", l.driver, size, s.image, l.name))
		l.succeed(t)
		for _, victim := range l.victims {
			id := l.begin(t)
			l.kill(t, id, victim)
			if l.rand.IntN(2) == 0 {
				l.succeed(t)
			}
		}
	})
	s.disturb(t)
	all(func(t *testing.T, l *lane) { l.begin(t) })
	nodes := []string{"c1", "c2"}
	address := func(node string) netip.Addr {
		at, err := netip.ParseAddr(strings.TrimSpace(docker(t, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", s.container(node))))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	former := map[string]netip.Addr{"c1": address("c1"), "c2": address("c2")}
	for _, node := range nodes {
		docker(t, "kill", s.container(node))
	}
	// Docker gives the lowest address that is free, and slurmctld remembers those
	// of before: with each other's, no end of a job would count.
	slices.SortFunc(nodes, func(a, b string) int { return former[a].Compare(former[b]) })
	for _, node := range nodes {
		docker(t, "start", s.container(node))
		if at := address(node); at != former[node] {
			t.Fatalf("%s was at %s and is at %s", node, former[node], at)
		}
		// A node that boots has a boot id by which the scratch of its former life
		// is known; this one has not.
		s.on(t, node, "root", "bash", "-c", "rm -rf /tmp/berth-1000-* /var/tmp/berth-1000-*")
	}
	t.Cleanup(func() { // also where something has failed in between
		for _, node := range []string{"c1", "c2"} {
			_ = exec.Command("docker", "start", s.container(node)).Run()
		}
	})
	// Slurm would find out by itself, in minutes.
	if a := s.on(t, "ctl", "root", "scontrol", "update", "NodeName=c1,c2", "State=DOWN", "Reason=killed"); a.code != 0 {
		t.Fatal(a.err)
	}
	waitFor(t, patience, func() bool {
		for _, node := range nodes { // one that has registered in between is up, and cannot be resumed
			s.on(t, "ctl", "root", "scontrol", "update", "NodeName="+node, "State=RESUME")
		}
		_, err := s.healthy(t)
		return err == nil
	})
	total := 0
	for _, l := range lanes {
		l.rounds++
		total += l.rounds
	}
	if total != 30 {
		t.Errorf("%d rounds", total)
	}
	all(func(t *testing.T, l *lane) {
		l.succeed(t)
		for i, id := range l.killed {
			var st status
			if i < len(l.killed)-1 {
				st = s.wait(t, id, 5)
			} else { // with its node; it takes minutes until no one doubts that it is gone
				st = s.status(t, id)
			}
			if st.State != "error" && st.State != "lost" && st.Final {
				t.Errorf("a killed job: %+v", st)
			}
		}
		if a := s.sh(t, "berth overlay check "+l.name); a.code != 0 || strings.Contains(a.out+a.err, "repaired") {
			t.Errorf("check: %d %s %s", a.code, a.out, a.err)
		}
		if out := s.ok(t, "cd ~/.local/state/berth/overlays/"+l.name+"; ls -A"); strings.Contains(out, ".attempt") || strings.Contains(out, ".making") {
			t.Errorf("left in the overlay's directory: %s", out)
		}
		if out := s.ok(t, "berth overlay show --json "+l.name); strings.Contains(out, `"holder"`) {
			t.Errorf("somebody has it: %s", out)
		}
	})
	s.quiet(t)
}

// lookAround tells what a job finds: the generation in its files, and that a directory
// of the image which the first one has replaced is still replaced.
const lookAround = `set -e
find /srv /usr/share/doc/gzip -type f -exec cat {} + >/dev/null
echo "saw $(cat /srv/state/* 2>/dev/null | sort | uniq -c | tr -s ' \n' ' ') $(ls -A /usr/share/doc/gzip)"
`

// submit submits a job of the lane; another that was killed may still be ending.
func (l *lane) submit(t *testing.T, command string) string {
	t.Helper()
	return l.s.submit(t, fmt.Sprintf("--profile %s --memory 700MiB --overlay %s --overlay-snapshot %s --overlay-wait 10m --slurm=--nodelist=%s", l.profile, l.name, l.want, l.node), lookAround+command)
}

// saw checks what a job has found.
func (l *lane) saw(t *testing.T, id string) {
	t.Helper()
	out := l.s.ok(t, "berth logs "+id+" | grep ^saw")
	if want := fmt.Sprintf("saw 100 %d thing", l.gen); l.want == "always" && l.gen > 0 && strings.Join(strings.Fields(out), " ") != want {
		t.Errorf("job %s found %q, want %q", id, out, want)
	} else if l.gen > 0 && !strings.HasSuffix(out, " thing") {
		t.Errorf("job %s found %q: a deleted directory is back", id, out)
	}
}

// succeed lets a job write the next generation.
func (l *lane) succeed(t *testing.T) {
	t.Helper()
	id := l.submit(t, fmt.Sprintf(`mkdir -p /srv/state; rm -rf /srv/junk
[ -e /usr/share/doc/gzip/thing ] || { rm -r /usr/share/doc/gzip; mkdir /usr/share/doc/gzip; echo thing >/usr/share/doc/gzip/thing; }
for i in $(seq 100); do echo %d >/srv/state/$i; done`, l.gen+1))
	l.s.wait(t, id, 0)
	l.saw(t, id)
	l.gen++
}

// begin starts a job that writes without end, and returns when it does.
func (l *lane) begin(t *testing.T) (id string) {
	t.Helper()
	id = l.submit(t, `echo ready
while :; do
	for i in $(seq 100); do echo dirty >/srv/state/$i; done
	rm -rf /srv/junk /usr/share/doc/bash; mkdir -p /srv/junk; cp /bin/bash /srv/junk/; mv /srv/junk/bash /srv/junk/sh
done`)
	waitFor(t, patience, func() bool {
		if st := l.s.status(t, id); st.Final {
			t.Fatalf("it has ended by itself: %+v\n%s", st, l.s.sh(t, "berth logs "+id).err)
		}
		return strings.Contains(l.s.sh(t, "berth logs "+id).out, "ready")
	})
	l.saw(t, id)
	l.killed = append(l.killed, id)
	time.Sleep(time.Duration(l.rand.IntN(1500)) * time.Millisecond)
	return id
}

// kill is kill -9 of one process of a job.
func (l *lane) kill(t *testing.T, id, victim string) {
	t.Helper()
	a := l.s.on(t, l.node, "root", "bash", "-c", `ps -eo pid=,ppid=,args= | awk -v runner="runner --attempt `+l.s.status(t, id).Dir+`" -v victim='^`+victim+`' '
{ pid = $1; parent[pid] = $2; sub(/^ *[0-9]+ +[0-9]+ +/, ""); sub(/^[^ ]*\/berth-node-/, "berth-node-"); args[pid] = $0 }
END { for (p in args) if (args[p] ~ victim) for (q = p; q > 1; q = parent[q]) if (index(args[q], runner)) { print p; break } }' | tee /dev/stderr | xargs -r kill -9`)
	if a.code != 0 || len(strings.Fields(a.err)) != 1 {
		t.Fatalf("kill %q of job %s on %s: %+v", victim, id, l.node, a)
	}
	l.rounds++
	t.Logf("%s %s: job %s lost %q", l.driver, l.want, id, victim)
}
